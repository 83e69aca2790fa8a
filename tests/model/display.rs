//! The reads of one transcript, compared: its live context, its display, and the pages of it.

use std::fmt::Debug;

use transcript_redb::{
    CompactionMarker, DisplayMessage, DisplayRecord, DisplaySessionTranscript, SessionTranscript,
    TranscriptLocator, TranscriptMessage, TranscriptRead, UsageRecord,
};
use uuid::Uuid;

use super::diff::{Checked, differ, holds, same};
use super::op::Meta;
use super::pair::{Pair, Reads, read};

impl Pair {
    /// Compares all reads of one transcript; answers the display of the redb store.
    pub fn compare_transcript(&mut self, stem: &str) -> Checked<Option<DisplaySessionTranscript>> {
        self.strict = self.reads == Reads::AtEnd || self.rng.percent(15);
        let open = |locator: &dyn TranscriptLocator| {
            read(
                "open_stem",
                locator.open_stem(stem, Meta::default().value()),
            )
        };
        let (memory, redb) = (open(&self.memory)?, open(&self.redb)?);
        same("the stem", memory.stem(), redb.stem())?;
        let sessions = (
            read("read_session", memory.read_session())?,
            read("read_session", redb.read_session())?,
        );
        self.compare_contexts(stem, sessions.0.as_ref(), sessions.1.as_ref())?;
        let displays = (
            read("read_display", memory.read_display())?,
            read("read_display", redb.read_display())?,
        );
        match (&displays.0, &displays.1) {
            (None, None) => {}
            (Some(expected), Some(found)) => self.compare_displays(stem, expected, found)?,
            (expected, found) => {
                return Err(differ(
                    &format!("whether {stem} has a display"),
                    &format!("{:?}", expected.is_some()),
                    &format!("{:?}", found.is_some()),
                ));
            }
        }
        if self.reads == Reads::AtEnd || self.rng.percent(10) {
            self.compare_pages(stem, redb.as_ref(), displays.1.as_ref())?;
            self.compare_pages(stem, memory.as_ref(), displays.0.as_ref())?;
        }
        Ok(displays.1)
    }

    fn compare_contexts(
        &self,
        stem: &str,
        expected: Option<&SessionTranscript>,
        found: Option<&SessionTranscript>,
    ) -> Checked {
        let what = format!("the live context of {stem}");
        same(&what, &expected, &found)?;
        let (Some(expected), Some(found)) = (expected, found) else {
            return Ok(());
        };
        for (expected, found) in expected.messages.iter().zip(&found.messages) {
            if self.strict {
                same_strictly(&what, expected, found)?;
            }
            holds(found.preserve_request_id, || {
                format!("{what}: a row that does not preserve its request id")
            })?;
        }
        same(&what, &debug(&expected.tools), &debug(&found.tools))
    }

    fn compare_displays(
        &mut self,
        stem: &str,
        expected: &DisplaySessionTranscript,
        found: &DisplaySessionTranscript,
    ) -> Checked {
        let what = |part: &str| format!("{part} in the display of {stem}");
        same(&what("the header"), &expected.meta, &found.meta)?;
        for (index, (expected, found)) in expected.records.iter().zip(&found.records).enumerate() {
            let what = format!("record {index} in the display of {stem}");
            match (expected, found) {
                (DisplayRecord::Message(expected), DisplayRecord::Message(found)) => {
                    self.compare_rows(&what, expected, found)?;
                }
                (DisplayRecord::Compaction(expected), DisplayRecord::Compaction(found)) => {
                    self.compare_markers(&what, expected, found)?;
                }
                _ => return Err(differ(&what, &debug(expected), &debug(found))),
            }
        }
        same(
            &what("the number of records"),
            &expected.records.len(),
            &found.records.len(),
        )?;
        for (expected, found) in expected.unattached.iter().zip(&found.unattached) {
            self.compare_usages(&what("a usage"), expected, found)?;
        }
        same(
            &what("the number of usages"),
            &expected.unattached.len(),
            &found.unattached.len(),
        )
    }

    fn compare_rows(
        &mut self,
        what: &str,
        expected: &DisplayMessage,
        found: &DisplayMessage,
    ) -> Checked {
        let (ts, uuid, revises) = (&expected.ts, expected.uuid, expected.revises);
        let mapped = DisplayMessage {
            ts: self.mapped_time(what, ts.as_deref(), found.ts.as_deref())?,
            uuid: self.mapped(what, uuid, found.uuid)?,
            revises: match (revises, found.revises) {
                (Some(expected), Some(found)) => Some(self.mapped(what, expected, found)?),
                (_, found) => found,
            },
            ..found.clone()
        };
        same(what, expected, &mapped)?;
        // What is new is always compared to the letter.
        let new = self
            .written_at
            .get(&found.uuid)
            .is_some_and(|at| *at == self.clock.now());
        if self.strict || new {
            same_strictly(what, &expected.message, &found.message)?;
        }
        Ok(())
    }

    fn compare_markers(
        &mut self,
        what: &str,
        expected: &CompactionMarker,
        found: &CompactionMarker,
    ) -> Checked {
        for (expected, found) in expected.replacement.iter().zip(&found.replacement) {
            self.compare_rows(what, expected, found)?;
        }
        let mapped = CompactionMarker {
            uuid: self.mapped(what, expected.uuid, found.uuid)?,
            ts: self.mapped_time(what, expected.ts.as_deref(), found.ts.as_deref())?,
            replacement: Vec::new(),
            ..found.clone()
        };
        let alone = CompactionMarker {
            replacement: Vec::new(),
            ..expected.clone()
        };
        same(what, &alone, &mapped)?;
        same(
            &format!("the length of the replacement of {what}"),
            &expected.replacement.len(),
            &found.replacement.len(),
        )
    }

    fn compare_usages(
        &mut self,
        what: &str,
        expected: &UsageRecord,
        found: &UsageRecord,
    ) -> Checked {
        let mapped = UsageRecord {
            uuid: self.mapped(what, expected.uuid, found.uuid)?,
            ts: self.mapped_time(what, expected.ts.as_deref(), found.ts.as_deref())?,
            ..found.clone()
        };
        same(what, expected, &mapped)?;
        same(what, &debug(expected), &debug(&mapped))
    }

    /// The reference's name for a record of the redb store. What is one record in one store is one in the other.
    fn mapped(&mut self, what: &str, memory: Uuid, redb: Uuid) -> Checked<Uuid> {
        let there = *self.to_redb.entry(memory).or_insert(redb);
        let back = *self.to_memory.entry(redb).or_insert(memory);
        holds(there == redb && back == memory, || {
            format!("{what}: {memory} of the reference is {there} and not {redb}, which is {back}")
        })?;
        let now = self.clock.now();
        self.written_at.entry(redb).or_insert(now);
        Ok(memory)
    }

    /// Times of writing differ between the stores, since the reference has a clock of its own.
    fn mapped_time(
        &self,
        what: &str,
        memory: Option<&str>,
        redb: Option<&str>,
    ) -> Checked<Option<String>> {
        let (Some(memory), Some(redb)) = (memory, redb) else {
            return Ok(redb.map(str::to_owned));
        };
        if memory == redb || !self.clock.showed(redb) {
            return Ok(Some(redb.to_owned()));
        }
        holds(memory.parse::<jiff::Timestamp>().is_ok(), || {
            format!("{what}: {memory:?} is no time of writing, but {redb:?} is")
        })?;
        Ok(Some(memory.to_owned()))
    }

    /// Pages to the beginning; the pages are the display.
    fn compare_pages(
        &mut self,
        stem: &str,
        handle: &dyn TranscriptRead,
        display: Option<&DisplaySessionTranscript>,
    ) -> Checked {
        let Some(display) = display else {
            let page = read("read_display_before", handle.read_display_before(None, 3))?;
            return same("the page of an unwritten transcript", &None, &page);
        };
        let what = format!("the pages of {stem}");
        let mut pages = Vec::new();
        let mut before = None;
        loop {
            let limit = self.rng.within(1..12);
            let page = read(
                "read_display_before",
                handle.read_display_before(before, limit),
            )?;
            let Some(page) = page else {
                return Err(differ(&what, "a page", "none"));
            };
            same(&what, &display.meta, &page.meta)?;
            holds(page.records.len() <= limit, || {
                format!("{what}: one is too long")
            })?;
            let numbers: Vec<u64> = page.records.iter().map(|(number, _)| *number).collect();
            holds(
                numbers.is_sorted_by(|a, b| a < b)
                    && before.is_none_or(|end| numbers.iter().all(|number| *number < end)),
                || format!("{what}: the sequences {numbers:?} before {before:?}"),
            )?;
            let first = numbers.first().copied();
            pages.push(page.records);
            if !page.more {
                break;
            }
            holds(first.is_some(), || {
                format!("{what}: an empty page has more before it")
            })?;
            before = first;
        }
        let all: Vec<DisplayRecord> = pages
            .into_iter()
            .rev()
            .flatten()
            .map(|(_, record)| record)
            .collect();
        same(&what, &display.records, &all)
    }
}

fn debug(value: &impl Debug) -> String {
    format!("{value:?}")
}

/// Equal down to the legacy text and the sign of a zero, which equality passes over.
fn same_strictly(what: &str, expected: &TranscriptMessage, found: &TranscriptMessage) -> Checked {
    let json = |row: &TranscriptMessage| serde_json::to_string(row).expect("a row");
    let (expected, found) = (json(expected), json(found));
    if expected == found {
        return Ok(());
    }
    Err(differ(what, &expected, &found))
}
