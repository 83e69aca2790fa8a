//! A conversation that uses every kind of write, one change a step, on a clock that stands still.

use std::sync::{Arc, Mutex};

use serde_json::json;
use transcript_redb::testkit::{SimDisk, TestClock};
use transcript_redb::{
    AppendRows, BackgroundAppend, Result, SessionRef, Store, StoreBuilder, TranscriptHistory,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptTurn,
    TruncateCut,
};

use super::picture::picture;
use super::values::{meta, usage};

/// A store on a simulated disk, and handles that stay the same whatever happens to the disk.
pub struct World {
    pub store: Store,
    root: Arc<dyn TranscriptHistory>,
    child: Arc<dyn TranscriptHistory>,
    other: Arc<dyn TranscriptHistory>,
    raw: Arc<dyn TranscriptHistory>,
    /// The handle of a generation that was begun.
    begun: Mutex<Option<Arc<dyn TranscriptHistory>>>,
}

pub type Step = (&'static str, fn(&World) -> Result<()>);

/// The steps, in order. Each makes one change, and an attempt that failed can be made again.
pub const STEPS: &[Step] = &[
    ("a first turn", first_turn),
    ("an extension with tools and a partial", extension),
    ("a first turn of a sub-agent", child_turn),
    ("a single row", single_row),
    ("a background append", background),
    ("a compaction", compaction),
    ("a first row of another session", other_row),
    ("rows by head token", by_token),
    ("a replacement", replacement),
    ("a successor from a baseline", successor),
    (
        "a background append to the head generation",
        background_again,
    ),
    ("a large turn", large_turn),
    ("a truncation into the next generation", truncation),
    ("an interrupted partial of the thread", partial),
    ("a move to another thread", move_thread),
    ("a clearing", clearing),
];

const NOW: i64 = 1_796_000_000_000_000;

fn session() -> SessionRef {
    SessionRef::scoped("conversation", "orchestrator")
}

impl World {
    /// A store whose clock stands still, with a cache so small that it reads and writes pages at any time.
    pub fn builder() -> StoreBuilder {
        let clock = Arc::new(TestClock::at(NOW, 7));
        Store::builder().environment(clock).cache_bytes(128 << 10)
    }

    /// Opens the store on `disk`.
    pub fn open(disk: &SimDisk) -> Result<Self> {
        Self::over(disk.open(Self::builder())?)
    }

    /// The same over a store that is open already.
    pub fn over(store: Store) -> Result<Self> {
        let locator = store.locator();
        let child = SessionRef::child_of(&session(), "worker");
        Ok(Self {
            root: locator.open_session(&session(), meta("orchestrator", "one"))?,
            child: locator.open_session(&child, meta("worker", "one"))?,
            other: locator.open_session(&SessionRef::root("other"), meta("clerk", "two"))?,
            raw: locator.open_stem("raw", meta("scribe", "two"))?,
            begun: Mutex::default(),
            store,
        })
    }

    /// Everything that it shows.
    pub fn picture(&self) -> Result<String> {
        let stems: Vec<_> = (0..3)
            .map(|generation| {
                let mut session = session();
                session.generation = generation;
                session.session_id()
            })
            .chain([self.child.stem().to_owned(), self.other.stem().to_owned()])
            .chain(["raw".to_owned()])
            .collect();
        let stems: Vec<_> = stems.iter().map(String::as_str).collect();
        picture(&self.store, &["one", "two", "three"], &stems)
    }

    /// A handle on the head of the main session.
    fn head(&self) -> Result<Arc<dyn TranscriptHistory>> {
        let locator = self.store.locator();
        let head = locator.head_generation(&session())?;
        locator.open_session(&head, meta("orchestrator", "one"))
    }
}

fn user(text: &str) -> TranscriptMessage {
    TranscriptMessage::user(text)
}

fn assistant(text: &str) -> TranscriptMessage {
    TranscriptMessage::assistant(text)
}

fn first_turn(world: &World) -> Result<()> {
    let rows = [
        TranscriptMessage::system("be brief"),
        user("question 1"),
        assistant("answer 1"),
    ];
    let (meta, usage) = (meta("orchestrator", "one"), usage(100));
    let turn = TranscriptTurn::new(&[], &rows, &meta)
        .with_turn_usage(&usage)
        .with_request_id("request 1");
    world.root.append_turn(turn)
}

/// Extends a transcript by rows that stand for a turn.
fn extend(
    history: &dyn TranscriptHistory,
    rows: Vec<TranscriptMessage>,
    meta: &TranscriptMeta,
    partial: Option<&TranscriptPartial>,
) -> Result<()> {
    let prev = history.messages()?;
    let next = [prev.clone(), rows].concat();
    let (usage, tools) = (usage(200), json!([{"name": "search"}]));
    let turn = TranscriptTurn::new(&prev, &next, meta)
        .with_turn_usage(&usage)
        .with_request_id("request 2")
        .with_tools(&tools);
    history.append_turn_with_partial(turn, partial)
}

fn extension(world: &World) -> Result<()> {
    let partial = TranscriptPartial::new("it was going to sa");
    let rows = vec![user("question 2"), assistant("answer 2")];
    let meta = meta("orchestrator", "one").with_turn_count(2);
    extend(world.root.as_ref(), rows, &meta, Some(&partial))
}

fn child_turn(world: &World) -> Result<()> {
    let rows = [user("do it"), assistant("done")];
    let (meta, usage) = (meta("worker", "one"), usage(50));
    let turn = TranscriptTurn::new(&[], &rows, &meta).with_turn_usage(&usage);
    world.child.append_turn(turn)
}

fn single_row(world: &World) -> Result<()> {
    world.raw.append(user("a note"))
}

fn background(world: &World) -> Result<()> {
    append_background(world, "job 1")
}

fn background_again(world: &World) -> Result<()> {
    append_background(world, "job 2")
}

fn append_background(world: &World, key: &str) -> Result<()> {
    let append = BackgroundAppend::new(key, json!({"from": "a test"}));
    let row = assistant("news").with_turn_usage(usage(10));
    world
        .store
        .locator()
        .append_background(&session(), row, &append)
        .map(drop)
}

fn compaction(world: &World) -> Result<()> {
    let prev = world.root.messages()?;
    let mut next = vec![assistant("a summary")];
    next.extend(prev.iter().skip(2).cloned());
    next.push(user("question 3"));
    let (meta, usage) = (meta("orchestrator", "one").with_turn_count(3), usage(300));
    let why = json!({"trigger": "a test"});
    let turn = TranscriptTurn::new(&prev, &next, &meta)
        .with_turn_usage(&usage)
        .with_request_id("request 3")
        .with_compaction(&why);
    world.root.append_turn(turn)
}

fn other_row(world: &World) -> Result<()> {
    world.other.append(user("hello"))
}

fn by_token(world: &World) -> Result<()> {
    let session = SessionRef::root("other");
    let token = world.store.head(&session)?.expect("it is written");
    let rows = [user("more"), assistant("of it")];
    let usage = usage(20);
    let rows = AppendRows {
        rows: &rows,
        usage: Some(&usage),
        request_id: Some("request 4"),
        ..AppendRows::default()
    };
    world.store.append_rows(&session, &token, rows).map(drop)
}

fn replacement(world: &World) -> Result<()> {
    let mut rows = world.child.messages()?;
    rows.insert(0, TranscriptMessage::system("instead"));
    world.child.replace(&rows)
}

fn successor(world: &World) -> Result<()> {
    let stored = world.root.messages()?;
    let mut begun = world.begun.lock().unwrap();
    let history = match begun.as_ref() {
        Some(history) => history,
        None => {
            let (_, history) = world.store.locator().begin_generation_from_baseline(
                &session(),
                meta("orchestrator", "one"),
                &stored,
            )?;
            begun.insert(history)
        }
    };
    let mut next = vec![assistant("what was said before")];
    next.extend(stored.last().cloned());
    next.push(assistant("answer 3"));
    let (meta, usage) = (meta("orchestrator", "one").with_turn_count(4), usage(400));
    let turn = TranscriptTurn::new(&[], &next, &meta)
        .with_turn_usage(&usage)
        .with_request_id("request 5");
    history.append_turn(turn)
}

/// Large enough to make the file grow.
fn large_turn(world: &World) -> Result<()> {
    let rows = (0..20)
        .map(|number| assistant(&format!("{number}: {}", "long ".repeat(1_500))))
        .collect();
    extend(
        world.head()?.as_ref(),
        rows,
        &meta("orchestrator", "one"),
        None,
    )
}

fn truncation(world: &World) -> Result<()> {
    world
        .store
        .locator()
        .truncate_into_next_generation(
            &session(),
            TruncateCut::BeforeIndex(4),
            meta("orchestrator", "one"),
        )
        .map(drop)
}

fn partial(world: &World) -> Result<()> {
    let partial = TranscriptPartial::new("it was in the middle of");
    let noted = world
        .store
        .locator()
        .append_interrupted_partial("one", None, &partial, None)?;
    assert!(noted, "the thread has a root");
    Ok(())
}

fn move_thread(world: &World) -> Result<()> {
    let rows = vec![user("elsewhere")];
    extend(world.other.as_ref(), rows, &meta("clerk", "three"), None)
}

fn clearing(world: &World) -> Result<()> {
    world.raw.clear()
}
