//! What the tests of the codecs share.

use std::path::Path;

use super::codec::Codec;
use super::emit::Emit;
use super::fact::{Fact, Kept, RowFact};
use super::report::FileReport;
use super::source::Source;
use super::tally::Tally;
use crate::SessionRef;

/// What a codec tells of some bytes.
pub fn facts(codec: &dyn Codec, path: &str, bytes: &[u8]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut source = Source::new(Path::new(path), bytes);
    codec.read(&mut source, &mut Emit::new(&mut facts)).unwrap();
    facts
}

/// All rows of it, in order.
pub fn rows(codec: &dyn Codec, path: &str, bytes: &[u8]) -> Vec<RowFact> {
    let mut rows = Vec::new();
    for fact in facts(codec, path, bytes) {
        match fact {
            Fact::Row(_, row) => rows.push(*row),
            Fact::Context(context) => {
                for kept in context.rows {
                    if let Kept::New(_, row) = kept {
                        rows.push(*row);
                    }
                }
            }
            _ => {}
        }
    }
    rows
}

/// The sessions of it, in order of their first mention.
pub fn sessions(codec: &dyn Codec, path: &str, bytes: &[u8]) -> Vec<SessionRef> {
    let mut sessions = Vec::new();
    for fact in facts(codec, path, bytes) {
        if let Fact::Session(no, session) = fact
            && no.0 as usize == sessions.len()
        {
            sessions.push(session.session);
        }
    }
    sessions
}

/// The text of the rows that the model would be sent in a session, by its number.
pub fn context(codec: &dyn Codec, path: &str, bytes: &[u8], session: u32) -> Vec<String> {
    let mut known = std::collections::HashMap::new();
    let mut live = Vec::new();
    for fact in facts(codec, path, bytes) {
        match fact {
            Fact::Row(no, row) => {
                known.insert(no, row.message.content.clone());
                if row.session.0 == session {
                    live.push(no);
                }
            }
            Fact::Context(context) => {
                let rows = context.rows.into_iter().map(|kept| match kept {
                    Kept::Row(no) => no,
                    Kept::New(no, row) => {
                        known.insert(no, row.message.content);
                        no
                    }
                });
                let rows: Vec<_> = rows.collect();
                if context.session.0 == session {
                    live = rows;
                }
            }
            _ => {}
        }
    }
    live.into_iter().map(|no| known[&no].clone()).collect()
}

/// What importing some bytes into an empty store would report.
pub fn report(codec: &dyn Codec, path: &str, bytes: &[u8]) -> FileReport {
    let mut tally = Tally::default();
    let mut source = Source::new(Path::new(path), bytes);
    codec.read(&mut source, &mut Emit::new(&mut tally)).unwrap();
    let mut report = FileReport::of(path.to_owned(), codec.name(), source.counts());
    tally.add_to(&mut report);
    report
}
