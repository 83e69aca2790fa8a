//! The bytes of a store's file: any at all, and those of a good store with damage.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use transcript_redb::{
    Backend, Environment, Error, ErrorKind, MessageUsage, Record, Result, SessionRef,
    SessionTranscript, Store, StoreFile, ThreadSpend, TranscriptLocator, TranscriptMessage,
    TranscriptMeta, TranscriptTurn, TurnUsage,
};

/// Bytes of one edit: what it does, a value, and where.
const EDIT: usize = 6;
/// The bytes before a row's text that are certainly its record's: hashes, place, identity.
const BEFORE: usize = 70;
const THREAD: &str = "thread-1";

/// The first byte chooses: even, and the rest is the file; odd, and the rest are edits of a good store's file.
///
/// Opening and reading answer what was written or an error, and never panic. A file that is refused is left as it was.
pub fn image(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let bytes = if choice % 2 == 0 {
        rest.to_vec()
    } else {
        edited(rest)
    };
    // redb answers some kinds of damage with a panic that the store catches. libFuzzer would stop at it, so the hook is
    // set aside: only a panic that comes out counts, and the last one noted is that one.
    let noted = Arc::new(Mutex::new(String::new()));
    let note = Arc::clone(&noted);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        *note.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    let result = catch_unwind(AssertUnwindSafe(|| check(&bytes)));
    std::panic::set_hook(hook);
    if let Err(panic) = result {
        let noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{noted}");
        resume_unwind(panic);
    }
}

fn check(bytes: &[u8]) {
    let file = MemoryFile::new(bytes.to_vec());
    match open(&file) {
        Err(error) => {
            assert_damage(&error);
            assert!(*file.lock() == bytes, "a refused file is left as it was");
        }
        // Nothing at all is a new store.
        Ok(store) if bytes.is_empty() => {
            let sessions = store.sessions();
            assert_eq!(sessions.expect("a new store can be read"), []);
        }
        Ok(store) => compare(&store),
    }
}

fn assert_damage(error: &Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Corrupted | ErrorKind::NewerFormat),
        "damage is called by its name: {error:?}"
    );
}

/// Every read of the damaged store is an error that says so or what the good store answers.
fn compare(store: &Store) {
    for (session, good) in &good().sessions {
        same(read_session(store, session), &good.transcript);
        same(read_records(store, session), &good.records);
    }
    same(store.locator().thread_spend(THREAD), &good().spend);
}

fn same<T: PartialEq>(found: Result<T>, expected: &T) {
    match found {
        Ok(found) => assert!(
            found == *expected,
            "damage is an error, never another answer"
        ),
        Err(error) => assert_damage(&error),
    }
}

fn read_session(store: &Store, session: &SessionRef) -> Result<Option<SessionTranscript>> {
    match store.locator().read_session_transcript(session)? {
        Some(transcript) => transcript.read_session(),
        None => Ok(None),
    }
}

fn read_records(store: &Store, session: &SessionRef) -> Result<Vec<Record>> {
    store.session_records(session)?.collect()
}

/// A good store: its file and its answers.
struct Good {
    bytes: Vec<u8>,
    /// Where the bytes of records stand in the file.
    record_bytes: Vec<usize>,
    sessions: Vec<(SessionRef, Answers)>,
    spend: ThreadSpend,
}

struct Answers {
    transcript: Option<SessionTranscript>,
    records: Vec<Record>,
}

fn good() -> &'static Good {
    static GOOD: OnceLock<Good> = OnceLock::new();
    GOOD.get_or_init(|| make_good().expect("a store in memory works"))
}

fn make_good() -> Result<Good> {
    let file = MemoryFile::new(Vec::new());
    let store = open(&file)?;
    let sessions = fill(&store)?;
    let answers = sessions
        .into_iter()
        .map(|session| {
            let transcript = read_session(&store, &session)?;
            let records = read_records(&store, &session)?;
            Ok((
                session,
                Answers {
                    transcript,
                    records,
                },
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let spend = store.locator().thread_spend(THREAD)?;
    drop(store);

    let bytes = file.lock().clone();
    let record_bytes = record_bytes(&bytes, &answers);
    Ok(Good {
        bytes,
        record_bytes,
        sessions: answers,
        spend,
    })
}

/// The texts of all rows, wherever they stand, and the bytes before each that belong to the same record.
fn record_bytes(bytes: &[u8], sessions: &[(SessionRef, Answers)]) -> Vec<usize> {
    let records = sessions.iter().flat_map(|(_, answers)| &answers.records);
    let texts: BTreeSet<&[u8]> = records
        .filter_map(|record| record.message.as_ref())
        .map(|shown| shown.message.content.as_bytes())
        .collect();
    let mut places = BTreeSet::new();
    for text in texts {
        for (start, _) in bytes
            .windows(text.len())
            .enumerate()
            .filter(|(_, window)| *window == text)
        {
            places.extend(start - BEFORE..start + text.len());
        }
    }
    places.into_iter().collect()
}

/// Two roots and a child with turns, usage, a compaction and a successor generation.
fn fill(store: &Store) -> Result<Vec<SessionRef>> {
    let locator = store.locator();
    let root = SessionRef::scoped(THREAD, "planner");
    let other = SessionRef::root("thread-2");
    let child = SessionRef::child_of(&root, "worker");
    for (session, turns) in [(&root, 20), (&other, 3), (&child, 5)] {
        let history = locator.open_session(session, meta())?;
        for turn in 0..turns {
            let stored = history.messages()?;
            let mut next = stored.clone();
            next.push(TranscriptMessage::user(format!("Question {turn}?")));
            let answer = format!("Answer {turn}. {}", "All is well. ".repeat(turn * 7));
            next.push(TranscriptMessage::assistant(answer));
            let (meta, usage) = (meta(), usage(turn));
            history
                .append_turn(TranscriptTurn::new(&stored, &next, &meta).with_turn_usage(&usage))?;
        }
    }
    let history = locator.open_session(&root, meta())?;
    let stored = history.messages()?;
    let mut kept = stored.get(30..).unwrap_or_default().to_vec();
    kept.insert(0, TranscriptMessage::system("A summary."));
    history.append_turn(TranscriptTurn::new(&stored, &kept, &meta()))?;

    let (successor, history) =
        locator.begin_generation_from_baseline(&root, meta(), &history.messages()?)?;
    history.replace(kept.get(5..).unwrap_or_default())?;
    history.append(TranscriptMessage::user("And then?"))?;
    Ok(vec![root, successor, other, child])
}

fn meta() -> TranscriptMeta {
    TranscriptMeta::new("planner")
        .with_thread_id(THREAD)
        .with_created("2024-11-30T11:00:00Z")
        .with_updated("2024-11-30T11:00:00Z")
}

fn usage(turn: usize) -> TurnUsage {
    TurnUsage {
        provider: "acme".to_owned(),
        model: "large-2".to_owned(),
        usage: MessageUsage {
            input: 100 + turn as u64,
            output: 10,
            cost_usd: 0.001,
            ..MessageUsage::default()
        },
        ..TurnUsage::default()
    }
}

/// The good file with edits of its records, and cut where an edit says so. What stands in the database's own pages
/// besides is left alone: redb checks no page when it reads it, and damage there can end in an abort of the process.
fn edited(edits: &[u8]) -> Vec<u8> {
    let good = good();
    let mut bytes = good.bytes.clone();
    for edit in edits.chunks_exact(EDIT) {
        let &[kind, value, a, b, c, d] = edit else {
            continue;
        };
        let place = u32::from_le_bytes([a, b, c, d]) as usize;
        let place = good.record_bytes[place % good.record_bytes.len()];
        let Some(byte) = bytes.get_mut(place) else {
            continue;
        };
        match kind % 4 {
            0 => *byte = value,
            1 => *byte ^= 1 << (value % 8),
            2 => *byte = byte.wrapping_add(value),
            _ => bytes.truncate(place),
        }
    }
    bytes
}

fn open(file: &MemoryFile) -> Result<Store> {
    let (database, journal) = (file.clone(), MemoryFile::new(Vec::new()));
    Store::builder()
        .cache_bytes(4 << 20)
        .environment(Arc::new(Steps::default()))
        .with_backend(move |file| {
            let opened = match file {
                StoreFile::Journal => &journal,
                _ => &database,
            };
            Ok(Box::new(opened.clone()) as Box<dyn Backend>)
        })
}

/// Time and randomness that are the same in every run, so that the good file is too.
#[derive(Debug, Default)]
struct Steps(AtomicU64);

impl Environment for Steps {
    fn now_micros(&self) -> i64 {
        let step = self.0.fetch_add(1, Ordering::Relaxed);
        1_732_965_300_000_000 + i64::try_from(step).unwrap_or_default() * 1_000
    }

    fn random(&self) -> u128 {
        let step = self.0.fetch_add(1, Ordering::Relaxed);
        u128::from(step).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }
}

/// A file in memory that shows what was written to it, whoever opens it.
#[derive(Clone, Debug)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl MemoryFile {
    fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(bytes)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(offset: u64, len: usize) -> io::Result<(usize, usize)> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    let end = start.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
    Ok((start, end))
}

impl Backend for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (start, end) = end(offset, out.len())?;
        let bytes = self.lock();
        let found = bytes.get(start..end);
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // A damaged header may ask for any length; a disk would refuse what it cannot hold.
        let len = usize::try_from(len).map_err(io::Error::other)?;
        if len > 64 << 20 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.lock().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (start, end) = end(offset, data.len())?;
        let mut bytes = self.lock();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        Ok(())
    }
}
