//! Look-ups of what was imported.

use redb::ReadOnlyTable;
use sha2::{Digest as _, Sha256};

use super::{Reader, missing};
use crate::store::attributes::Attributes;
use crate::store::binary;
use crate::store::database::{storage_error, table_error};
use crate::store::import::SourceInfo;
use crate::store::import::step::{CallGroup, ChunkHash, RepeatKey, SourceEntry};
use crate::store::origin::{Imported, ORIGIN_CHUNK, Origins};
use crate::store::tables::{self, id_key};
use crate::{Error, Result, SessionRef};

impl Reader<'_> {
    /// A table that stores of before there were imports lack.
    pub(super) fn optional<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        table: redb::TableDefinition<'_, K, V>,
    ) -> Result<Option<ReadOnlyTable<K, V>>> {
        match self.snapshot.transaction.open_table(table) {
            Ok(table) => Ok(Some(table)),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(table_error(error)),
        }
    }

    /// The import and the record that a repeat key stands for.
    pub(in crate::store) fn import_key(&self, key: &RepeatKey) -> Result<Option<(u64, u128)>> {
        let Some(table) = self.optional(tables::IMPORT_KEYS)? else {
            return Ok(None);
        };
        let found = table.get(key.as_slice()).map_err(storage_error)?;
        Ok(found.map(|found| found.value()))
    }

    /// Where in the log the record with this UUID stands.
    pub(in crate::store) fn position_of(&self, uuid: u128) -> Result<Option<u64>> {
        let table = self.snapshot.records_by_uuid()?;
        let found = table.get(uuid).map_err(storage_error)?;
        Ok(found.map(|position| position.value()))
    }

    pub(in crate::store) fn is_unpublished(&self, import: u64) -> Result<bool> {
        match self.optional(tables::IMPORTS)? {
            Some(table) => Ok(table.get(import).map_err(storage_error)?.is_some()),
            None => Ok(false),
        }
    }

    /// All imports that were never published.
    pub(in crate::store) fn unpublished(&self) -> Result<Vec<u64>> {
        let Some(table) = self.optional(tables::IMPORTS)? else {
            return Ok(Vec::new());
        };
        let all = table.range(0u64..).map_err(storage_error)?;
        all.map(|entry| Ok(entry.map_err(storage_error)?.0.value()))
            .collect()
    }

    /// Whether an import made a transcript.
    pub(in crate::store) fn is_imported(&self, transcript: u64) -> Result<bool> {
        Ok(!self.sources_of(transcript)?.is_empty())
    }

    /// The sources that a transcript was made of.
    pub(in crate::store) fn sources_of(&self, transcript: u64) -> Result<Vec<u64>> {
        let Some(table) = self.optional(tables::SOURCES_BY_TRANSCRIPT)? else {
            return Ok(Vec::new());
        };
        let found = table
            .range((transcript, 0)..=(transcript, u64::MAX))
            .map_err(storage_error)?;
        found
            .map(|entry| Ok(entry.map_err(storage_error)?.0.value().1))
            .collect()
    }

    /// The transcripts that a source contributed to. Costs the number of such pairs in the store.
    pub(in crate::store) fn transcripts_of(
        &self,
        source: u64,
    ) -> Result<std::collections::HashSet<u64>> {
        let Some(table) = self.optional(tables::SOURCES_BY_TRANSCRIPT)? else {
            return Ok(std::collections::HashSet::new());
        };
        let mut found = std::collections::HashSet::new();
        for entry in table.range((0, 0)..).map_err(storage_error)? {
            let (transcript, of) = entry.map_err(storage_error)?.0.value();
            if of == source {
                found.insert(transcript);
            }
        }
        Ok(found)
    }

    pub(in crate::store) fn source(&self, id: u64) -> Result<Option<SourceEntry>> {
        let Some(table) = self.optional(tables::SOURCES)? else {
            return Ok(None);
        };
        let found = table.get(id).map_err(storage_error)?;
        found
            .map(|bytes| binary::decode(bytes.value(), "a source"))
            .transpose()
    }

    /// The source that was last imported from a path.
    pub(in crate::store) fn source_at(&self, path: &str) -> Result<Option<(u64, SourceEntry)>> {
        let Some(table) = self.optional(tables::SOURCES_BY_PATH)? else {
            return Ok(None);
        };
        let key = id_key(self.seed, path);
        let found = table.get(key.as_slice()).map_err(storage_error)?;
        let Some(id) = found.map(|id| id.value()) else {
            return Ok(None);
        };
        match self.source(id)? {
            Some(entry) => Ok(Some((id, entry))),
            None => Err(missing("a source", &format!("source {id}"))),
        }
    }

    /// All sources, by their numbers.
    pub(in crate::store) fn sources(&self) -> Result<Vec<SourceInfo>> {
        let Some(table) = self.optional(tables::SOURCES)? else {
            return Ok(Vec::new());
        };
        let all = table.range(0u64..).map_err(storage_error)?;
        all.map(|found| {
            let (id, bytes) = found.map_err(storage_error)?;
            let entry: SourceEntry = binary::decode(bytes.value(), "a source")?;
            Ok(entry.info(id.value()))
        })
        .collect()
    }

    /// Where a record was imported from.
    pub(in crate::store) fn origin(&self, transcript: u64, seq: u64) -> Result<Option<Imported>> {
        let Some(table) = self.snapshot.origins()? else {
            return Ok(None);
        };
        let chunk = (transcript, seq / ORIGIN_CHUNK);
        let Some(bytes) = table.get(chunk).map_err(storage_error)? else {
            return Ok(None);
        };
        let origins: Origins = binary::decode(bytes.value(), "the origins of a transcript")?;
        Ok(origins.get(seq))
    }

    /// The sources that a transcript was read from, each with the version of the codec that read it, and how many of its
    /// records come from them.
    pub(in crate::store) fn readings_of(&self, transcript: u64) -> Result<(Vec<(u64, u32)>, u64)> {
        let (mut readings, mut records) = (Vec::new(), 0);
        if let Some(table) = self.snapshot.origins()? {
            let chunks = (transcript, 0)..=(transcript, u64::MAX);
            for chunk in table.range(chunks).map_err(storage_error)? {
                let (_, bytes) = chunk.map_err(storage_error)?;
                let origins: Origins =
                    binary::decode(bytes.value(), "the origins of a transcript")?;
                readings.extend(origins.sources());
                records += origins.len();
                readings.sort_unstable();
                readings.dedup();
            }
        }
        Ok((readings, records))
    }

    /// What else sources told of the session of a transcript.
    pub(in crate::store) fn attributes(&self, transcript: u64) -> Result<Attributes> {
        let Some(table) = self.optional(tables::ATTRIBUTES)? else {
            return Ok(Attributes::default());
        };
        let found = table.get(transcript).map_err(storage_error)?;
        found.map_or(Ok(Attributes::default()), |text| {
            Attributes::parse(text.value())
        })
    }

    pub(in crate::store) fn has_chunk(&self, hash: &ChunkHash) -> Result<bool> {
        // One that no source uses may be about to be taken out.
        match self.optional(tables::CHUNK_USES)? {
            Some(table) => Ok(table.get(hash.as_slice()).map_err(storage_error)?.is_some()),
            None => Ok(false),
        }
    }

    /// The content of a chunk, checked against its hash.
    pub(in crate::store) fn chunk(&self, hash: &ChunkHash) -> Result<Vec<u8>> {
        let absent = || missing("a chunk of a source", "it");
        let table = self.optional(tables::CHUNKS)?.ok_or_else(absent)?;
        let found = table.get(hash.as_slice()).map_err(storage_error)?;
        let packed = found.ok_or_else(absent)?;
        let chunk = crate::store::import::unpack(packed.value())?;
        if Sha256::digest(&chunk).as_slice() != hash {
            return Err(Error::Corrupted {
                what: "a chunk of a source".to_owned(),
                at: "its hash does not match".to_owned(),
            });
        }
        Ok(chunk)
    }

    pub(in crate::store) fn provider_call(&self, key: &[u8]) -> Result<Option<CallGroup>> {
        let Some(table) = self.optional(tables::PROVIDER_CALLS)? else {
            return Ok(None);
        };
        let found = table.get(key).map_err(storage_error)?;
        found
            .map(|bytes| binary::decode(bytes.value(), "a provider call"))
            .transpose()
    }

    /// Whether a usage record does not count, since another one tells of the same call.
    pub(in crate::store) fn is_superseded(&self, transcript: u64, seq: u64) -> Result<bool> {
        match self.optional(tables::SUPERSEDED)? {
            Some(table) => Ok(table
                .get((transcript, seq))
                .map_err(storage_error)?
                .is_some()),
            None => Ok(false),
        }
    }

    /// The reference of a generation of a session by its stem id, if it was written through one.
    pub(in crate::store) fn session_ref(
        &mut self,
        id: u64,
        generation: u32,
    ) -> Result<Option<SessionRef>> {
        let parts = self.stem_info(id)?.session;
        Ok(parts.map(|it| SessionRef::from_parts(it.key, it.agent, generation, it.ancestors)))
    }
}

impl SourceEntry {
    /// What callers are told of it.
    pub(in crate::store) fn info(self, id: u64) -> SourceInfo {
        SourceInfo {
            id,
            path: self.path,
            format: self.format,
            codec_version: self.codec_version,
            length: self.length,
            hash: self.hash,
        }
    }
}
