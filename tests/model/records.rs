//! The records as they lie in the log, against the displays.

use std::collections::{BTreeSet, VecDeque};

use transcript_redb::{DisplayMessage, DisplayRecord, Record, RecordIter, RecordKind, SessionRef};
use uuid::Uuid;

use super::diff::{Checked, holds, same};
use super::pair::{Pair, read};
use super::stems::{base_of, base_of_stem, generation_of, stem_of};

impl Pair {
    /// The records of a session: complete, in the order of the log, each once, and in agreement with the displays.
    pub fn check_records(&mut self, base: &str) -> Checked {
        let reference = self
            .world
            .sessions
            .iter()
            .find(|it| base_of(it) == base)
            .cloned();
        let mut all = Vec::new();
        let mut shown = BTreeSet::new();
        for generation in 0..self.chain_of(base) {
            let stem = stem_of(base, generation);
            let records = collected(read("records_of_stem", self.store.records_of_stem(&stem))?)?;
            self.check_log(&stem, generation, &records, &mut shown)?;
            if let Some(session) = &reference {
                let by_session = self.store.records(&generation_of(session, generation));
                let by_session = collected(read("records", by_session)?)?;
                same(&format!("records of {stem}"), &records, &by_session)?;
            }
            all.extend(records);
        }
        if all.len() > 128 {
            self.note("a log of many pages");
        }
        if let Some(session) = reference {
            self.check_chain(&session, &all)?;
        }
        for record in &all {
            let found = read("record", self.store.record(record.uuid))?;
            same(
                &format!("record {}", record.uuid),
                &Some(record),
                &found.as_ref(),
            )?;
        }
        Ok(())
    }

    /// The chain's records come in both directions, from both ends at once, and behind any of them.
    fn check_chain(&mut self, session: &SessionRef, all: &[Record]) -> Checked {
        let what = format!("session_records of {}", session.session_id());
        let records = || read("session_records", self.store.session_records(session));
        same(&what, all, &collected(records()?)?)?;
        let mut backwards = records()?.rev().collect::<Result<Vec<_>, _>>();
        if let Ok(backwards) = &mut backwards {
            backwards.reverse();
        }
        same(&what, all, &read(&what, backwards)?)?;

        let mut iter = records()?;
        let (mut front, mut back) = (Vec::new(), VecDeque::new());
        let mut rng = self.rng.clone();
        loop {
            let next = if rng.percent(50) {
                iter.next().map(|next| next.map(|next| front.push(next)))
            } else {
                iter.next_back()
                    .map(|next| next.map(|next| back.push_front(next)))
            };
            match next {
                None => break,
                Some(next) => read(&what, next)?,
            }
        }
        front.extend(back);
        same(&format!("{what} from both ends"), all, &front)?;

        for _ in 0..3.min(all.len()) {
            let index = rng.below(all.len());
            let behind = read("after", records()?.after(all[index].uuid))?;
            let behind = collected(behind)?;
            same(&format!("{what} after {index}"), &all[index + 1..], &behind)?;
        }
        let stranger = records()?.after(Uuid::from_u128(7));
        holds(stranger.is_err(), || {
            format!("{what} after a record of no log")
        })?;
        self.rng = rng;
        Ok(())
    }

    /// The log of one generation. `shown` holds the rows that earlier generations have shown.
    fn check_log(
        &self,
        stem: &str,
        generation: u32,
        records: &[Record],
        shown: &mut BTreeSet<Uuid>,
    ) -> Checked {
        let what = |part: &str| format!("{part} in the log of {stem}");
        let mut parent = None;
        let mut last: Option<&Record> = None;
        for record in records {
            same(&what("the parent"), &parent, &record.parent)?;
            same(&what("the stem"), stem, &record.stem)?;
            same(&what("the generation"), &generation, &record.generation)?;
            if let Some(last) = last {
                holds(last.uuid < record.uuid && last.seq < record.seq, || {
                    what("a record that is not behind the one before")
                })?;
            }
            same(
                &what("the version of an id"),
                &7,
                &record.uuid.get_version_num(),
            )?;
            holds(self.clock.showed(&record.written_at), || {
                what("a strange time")
            })?;
            if let Some(at) = self.written_at.get(&record.uuid) {
                same(&what("the time of a write"), at, &record.written_at)?;
            }
            parent = Some(record.uuid);
            last = Some(record);
        }
        self.check_contents(stem, generation, records, shown)
    }

    /// Every record stands in the display, and everything in the display is a record.
    fn check_contents(
        &self,
        stem: &str,
        generation: u32,
        records: &[Record],
        shown: &mut BTreeSet<Uuid>,
    ) -> Checked {
        let what = |part: &str| format!("{part} in the log of {stem}");
        let of = |kinds: &[RecordKind]| -> Vec<&Record> {
            let kept = records.iter().filter(|record| kinds.contains(&record.kind));
            kept.collect()
        };
        let display = self.display(stem)?.expect("it is written");
        let (mut rows, mut markers, mut retained) = (Vec::new(), Vec::new(), Vec::new());
        for record in &display.records {
            let stored = rows.len();
            match record {
                DisplayRecord::Message(row) if shown.contains(&row.uuid) => retained.push(row.uuid),
                DisplayRecord::Message(row) => rows.push(row.as_ref()),
                // What a marker keeps was shown before, in this log or in one before.
                DisplayRecord::Compaction(marker) => {
                    let new = |row: &&DisplayMessage| !shown.contains(&row.uuid);
                    rows.extend(marker.replacement.iter().filter(new));
                    markers.push(marker);
                }
            }
            shown.extend(rows[stored..].iter().map(|row| row.uuid));
        }
        let stored = of(&[RecordKind::Message, RecordKind::Partial]);
        let messages: Vec<_> = stored.iter().filter_map(|it| it.message.as_ref()).collect();
        same(&what("the rows"), &rows, &messages)?;
        for record in stored {
            let interrupted = record.message.as_ref().is_some_and(|row| row.interrupted);
            same(
                &what("a partial"),
                &interrupted,
                &(record.kind == RecordKind::Partial),
            )?;
        }
        let compactions = of(&[RecordKind::Compaction]);
        same(
            &what("the number of compactions"),
            &markers.len(),
            &compactions.len(),
        )?;
        for (marker, record) in markers.iter().zip(compactions) {
            let replacement: Vec<_> = marker.replacement.iter().map(|row| row.uuid).collect();
            let said = (
                marker.uuid,
                &marker.request_id,
                &marker.metadata,
                &replacement,
            );
            let found = (
                record.uuid,
                &record.request_id,
                &record.metadata,
                &record.retained,
            );
            same(&what("a compaction"), &said, &found)?;
            same(
                &what("its time"),
                &marker.ts.as_ref(),
                &Some(&record.written_at),
            )?;
        }
        let usages = of(&[RecordKind::Usage]);
        let usages: Vec<_> = usages
            .iter()
            .map(|it| (it.uuid, it.usage.clone()))
            .collect();
        let unattached = display.unattached.iter();
        let unattached: Vec<_> = unattached
            .map(|it| (it.uuid, Some(it.usage.clone())))
            .collect();
        same(&what("the usages"), &unattached, &usages)?;
        let kept: Vec<_> = of(&[RecordKind::Retained])
            .iter()
            .flat_map(|it| it.retained.clone())
            .collect();
        same(
            &what("the rows kept from the generation before"),
            &retained,
            &kept,
        )?;
        let sealed = generation + 1 < self.chain_of(base_of_stem(stem));
        let seals = of(&[RecordKind::Seal]);
        same(
            &what("the number of seals"),
            &usize::from(sealed),
            &seals.len(),
        )?;
        if sealed {
            holds(seals.last() == records.last().as_ref(), || {
                what("a record behind the seal")
            })?;
        }
        let tools = of(&[RecordKind::Tools])
            .last()
            .and_then(|record| record.tools.clone());
        let handle = self.memory_session(stem)?;
        same(&what("the last tools"), &handle.tools, &tools)
    }
}

fn collected(iter: RecordIter) -> Checked<Vec<Record>> {
    read("a record", iter.collect())
}
