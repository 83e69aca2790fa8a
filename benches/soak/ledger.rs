//! What was acknowledged, and whether it is there.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use common::Result;
use common::ours::session;
use common::work::thread;
use transcript_redb::{RecordKind, Store, TranscriptLocator as _, TranscriptMessage};

use crate::Verdict;

/// The rows and tokens of one session that were acknowledged. All rows differ, so their count and the sum of their
/// hashes tell whether a set of rows is the same.
#[derive(Debug, Default)]
pub struct Ledger {
    pub rows: AtomicU64,
    pub hashes: AtomicU64,
    pub input_tokens: AtomicU64,
    pub generation: AtomicU64,
}

impl Ledger {
    pub fn add_rows(&self, rows: &[TranscriptMessage]) {
        let sum = rows
            .iter()
            .fold(0u64, |sum, row| sum.wrapping_add(hash(&row.content)));
        self.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        self.hashes.fetch_add(sum, Ordering::Relaxed);
    }

    fn is(&self, counted: Counted, input_tokens: u64, generation: u32) -> bool {
        let of = |value: &AtomicU64| value.load(Ordering::Relaxed);
        of(&self.rows) == counted.rows
            && of(&self.hashes) == counted.hashes
            && of(&self.input_tokens) == input_tokens
            && of(&self.generation) == u64::from(generation)
    }
}

fn hash(content: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Copy, Default)]
struct Counted {
    rows: u64,
    hashes: u64,
}

/// Compares the store, opened again, with the ledgers and with what each writer knows to be the live context.
pub fn check(
    store: &Store,
    ledgers: &[Ledger],
    last: &[Vec<TranscriptMessage>],
    verdict: &mut Verdict,
) -> Result<()> {
    let locator = store.locator();
    let (mut right, mut live, mut rows) = (0, 0, 0);
    let mut twice = 0;
    for (number, (ledger, last)) in ledgers.iter().zip(last).enumerate() {
        let reference = session(number);
        let mut counted = Counted::default();
        let mut seen = HashMap::new();
        for record in store.session_records(&reference)? {
            let record = record?;
            *seen.entry(record.uuid).or_insert(0) += 1;
            if record.kind != RecordKind::Message {
                continue;
            }
            let message = record.message.ok_or("a message has a row")?;
            counted.rows += 1;
            counted.hashes = counted.hashes.wrapping_add(hash(&message.message.content));
        }
        twice += seen.values().filter(|times| **times > 1).count();
        rows += counted.rows;
        let head = locator.head_generation(&reference)?;
        let spend = locator.thread_spend(&thread(number))?;
        if ledger.is(counted, spend.root.input_tokens, head.generation) {
            right += 1;
        }
        let header = common::work::meta(number);
        let found = locator.open_session(&head, header)?.messages()?;
        let same = found.len() == last.len()
            && found
                .iter()
                .zip(last)
                .all(|(found, last)| (&found.role, &found.content) == (&last.role, &last.content));
        live += usize::from(same);
    }
    let count = ledgers.len();
    verdict.check(
        "opened again: rows, spend and generations are those that were acknowledged",
        format!("{right} of {count} sessions, {rows} rows"),
        right == count,
    );
    verdict.check(
        "opened again: each record is there once",
        format!("{twice} twice"),
        twice == 0,
    );
    verdict.check(
        "opened again: live contexts are as their writers left them",
        format!("{live} of {count} sessions"),
        live == count,
    );
    Ok(())
}
