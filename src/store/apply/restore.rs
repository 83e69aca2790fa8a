//! The last step of the import of an image → tables.

use std::collections::{HashMap, HashSet};

use redb::ReadableTable as _;

use super::{Place, Writer, full_stem};
use crate::session::is_subagent_stem;
use crate::store::binary;
use crate::store::database::{storage_error, table_error};
use crate::store::head::{Birth, RunTail, Transcript};
use crate::store::import::step::{
    CallGroup, CountedAt, Restored, RestoredSource, RestoredTranscript, SourceChange,
};
use crate::store::tables::{self, id_key};
use crate::{Error, Result};

impl Writer<'_> {
    pub(super) fn restore(&mut self, restored: &Restored) -> Result<()> {
        let stems = self.restore_stems(restored)?;
        for transcript in &restored.transcripts {
            self.restore_head(transcript)?;
        }
        self.publish_records(restored.import, None)?;
        self.clear_totals(restored, &stems)?;
        for stem in &restored.stems {
            for (thread, agent, usage) in &stem.hours {
                let at = self.counted_under(&stems, &stem.stem, thread, agent)?;
                self.spend.add_hour(&mut self.names, at.place(0), usage)?;
            }
        }
        for transcript in &restored.transcripts {
            for (agent, usage) in &transcript.spent {
                let at = self.counted_under(&stems, &transcript.session, "", agent)?;
                let place = at.place(transcript.transcript);
                self.spend.add_transcript(&mut self.names, place, usage)?;
            }
        }
        self.restore_calls(restored, &stems)?;
        for source in &restored.sources {
            self.restore_source(source)?;
        }
        self.restore_contributions(&restored.transcripts)?;
        self.restore_unknown(&restored.unknown)?;
        self.published(restored.import)
    }

    /// Mentions the sessions of an image, in their order; their ids.
    fn restore_stems<'r>(&mut self, restored: &'r Restored) -> Result<HashMap<&'r str, u64>> {
        let mut ids = HashMap::with_capacity(restored.stems.len());
        let mut new = Vec::new();
        for stem in &restored.stems {
            let (id, is_new) = self.stems.intern(&stem.stem)?;
            ids.insert(stem.stem.as_str(), id);
            if is_new {
                new.push((id, stem));
            }
        }
        for stem in &restored.stems {
            if let (Some(parts), Some(id)) = (&stem.session, ids.get(stem.stem.as_str())) {
                self.stems.name(*id, parts)?;
            }
        }
        for (id, stem) in new {
            let parent = match &stem.parent {
                Some(parent) => Some(self.stems.intern(parent)?.0),
                None => None,
            };
            self.stems.place(id, parent)?;
        }
        Ok(ids)
    }

    fn restore_head(&mut self, restored: &RestoredTranscript) -> Result<()> {
        let number = restored.transcript;
        if let Some(text) = &restored.attributes {
            self.set_attributes(number, text)?;
        }
        if restored.held {
            let mut transcript = self.load(number)?;
            let birth = transcript.birth;
            let before = std::mem::replace(&mut transcript.head, restored.head.clone()).meta;
            self.heads.insert(number, transcript);
            self.index.update(
                &mut self.names,
                number,
                birth.subagent,
                Some(&before),
                &restored.head.meta,
            )?;
            return self.hold_keys(birth.session, restored);
        }
        let stem = full_stem(&restored.session, restored.generation);
        let session = self.stems.mention(&stem)?;
        self.generations
            .insert((session, restored.generation), number)
            .map_err(storage_error)?;
        let subagent = is_subagent_stem(&restored.session);
        let meta = &restored.head.meta;
        self.index
            .update(&mut self.names, number, subagent, None, meta)?;
        let transcript = Transcript {
            birth: Birth {
                session,
                generation: restored.generation,
                incarnation: restored.incarnation,
                subagent,
                created_at: restored.created_at,
            },
            head: restored.head.clone(),
            runs: RunTail::default(),
        };
        self.heads.insert(number, transcript);
        self.hold_keys(session, restored)
    }

    fn hold_keys(&mut self, session: u64, restored: &RestoredTranscript) -> Result<()> {
        for (key, seq) in &restored.keys {
            let key = id_key(self.seed, key);
            self.idempotency
                .insert((session, key.as_slice(), restored.transcript, *seq), ())
                .map_err(storage_error)?;
        }
        Ok(())
    }

    /// Takes out the totals that those of the image stand for. Costs a look at all totals by hour, if there are such.
    fn clear_totals(&mut self, restored: &Restored, stems: &HashMap<&str, u64>) -> Result<()> {
        let replaced = restored.stems.iter().filter(|stem| stem.replaces);
        let sessions: HashSet<u64> = replaced
            .filter_map(|stem| stems.get(stem.stem.as_str()).copied())
            .collect();
        if sessions.is_empty() {
            return Ok(());
        }
        // What is gathered has to be there before something is taken out.
        self.spend.flush()?;
        self.spend
            .by_hour
            .retain(|(_, _, session, ..), _| !sessions.contains(&session))
            .map_err(storage_error)?;
        for transcript in restored.transcripts.iter().filter(|it| it.held) {
            let number = transcript.transcript;
            let totals = (number, 0, 0, 0, 0)..=(number, u64::MAX, u64::MAX, u64::MAX, u8::MAX);
            self.spend
                .by_transcript
                .retain_in(totals, |_, _| false)
                .map_err(storage_error)?;
        }
        Ok(())
    }

    fn counted_under(
        &mut self,
        stems: &HashMap<&str, u64>,
        stem: &str,
        thread: &str,
        agent: &str,
    ) -> Result<CountedAt> {
        let session = stems.get(stem).copied();
        Ok(CountedAt {
            session: session.ok_or_else(|| Error::other("totals of a session not mentioned"))?,
            thread: self.names.id(thread)?,
            agent: self.names.id(agent)?,
        })
    }

    fn restore_calls(&mut self, restored: &Restored, stems: &HashMap<&str, u64>) -> Result<()> {
        let open = self.transaction;
        let mut calls = open
            .open_table(tables::PROVIDER_CALLS)
            .map_err(table_error)?;
        for call in &restored.calls {
            let held = match calls.get(call.key.as_slice()).map_err(storage_error)? {
                Some(bytes) => Some(binary::decode::<CallGroup>(
                    bytes.value(),
                    "a provider call",
                )?),
                None => None,
            };
            let group = call.group(held, |[stem, thread, agent]| {
                self.counted_under(stems, stem, thread, agent)
            })?;
            let bytes = binary::encode(&group)?;
            calls
                .insert(call.key.as_slice(), bytes.as_slice())
                .map_err(storage_error)?;
        }
        let mut marks = open.open_table(tables::SUPERSEDED).map_err(table_error)?;
        for (transcript, seq, superseded) in &restored.superseded {
            super::put(&mut marks, (*transcript, *seq), *superseded)?;
        }
        Ok(())
    }

    fn restore_source(&mut self, source: &RestoredSource) -> Result<()> {
        let path = id_key(self.seed, &source.entry.path);
        let open = self.transaction;
        let before = {
            let by_path = open
                .open_table(tables::SOURCES_BY_PATH)
                .map_err(table_error)?;
            let held = by_path.get(path.as_slice()).map_err(storage_error)?;
            held.map(|held| held.value())
        };
        self.publish_source(&SourceChange {
            id: source.id,
            entry: source.entry.clone(),
            transcripts: Vec::new(),
        })?;
        if source.newest {
            return Ok(());
        }
        // What was imported from the path before, or later, stays what the path leads to.
        let mut by_path = open
            .open_table(tables::SOURCES_BY_PATH)
            .map_err(table_error)?;
        match before {
            Some(before) => by_path.insert(path.as_slice(), before),
            None => by_path.remove(path.as_slice()),
        }
        .map_err(storage_error)?;
        Ok(())
    }

    /// Notes which transcripts were made of which sources.
    fn restore_contributions(&mut self, transcripts: &[RestoredTranscript]) -> Result<()> {
        let mut of = self
            .transaction
            .open_table(tables::SOURCES_BY_TRANSCRIPT)
            .map_err(table_error)?;
        for transcript in transcripts {
            for source in &transcript.sources {
                of.insert((transcript.transcript, *source), ())
                    .map_err(storage_error)?;
            }
        }
        Ok(())
    }

    fn restore_unknown(&mut self, unknown: &[(String, String)]) -> Result<()> {
        if unknown.is_empty() {
            return Ok(());
        }
        let mut table = self
            .transaction
            .open_table(tables::UNKNOWN)
            .map_err(table_error)?;
        for (of, text) in unknown {
            let known = table.get(of.as_str()).map_err(storage_error)?.is_some();
            if !known {
                table
                    .insert(of.as_str(), text.as_str())
                    .map_err(storage_error)?;
            }
        }
        Ok(())
    }
}

impl CountedAt {
    fn place(self, transcript: u64) -> Place {
        Place {
            transcript,
            session: self.session,
            thread: self.thread,
            agent: self.agent,
        }
    }
}
