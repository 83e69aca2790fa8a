//! The live context: resume reads, and the view of it that planning compares with.

use std::collections::HashMap;

use serde_json::Value;

use super::{Reader, missing};
use crate::replay::StoredRow;
use crate::store::database::{storage_error, table_error};
use crate::store::hash::{Identity, RowHashes};
use crate::store::head::{Head, Range};
use crate::store::record::{Body, Kind, Opened};
use crate::store::tables::{self, id_key};
use crate::turn::{Match, StoredRows, matches};
use crate::{Result, SessionTranscript, TranscriptMessage};

impl<'t> Reader<'t> {
    /// The ranges that make up the context of a head, in order; the last one is the appended tail.
    ///
    /// A head that a plan holds may be older than the snapshot: it ends where the head does.
    pub(in crate::store) fn context_ranges(
        &mut self,
        transcript: u64,
        head: &Head,
    ) -> Result<Vec<Range>> {
        let context = &head.context;
        let mut ranges = match context.base_record {
            None => context.base.clone(),
            Some(seq) => self.record_at(transcript, seq, |record| match record.body()? {
                Body::Marker(marker) => Ok(marker.replacement),
                Body::Retained(ranges) => Ok(ranges),
                _ => Err(missing(
                    "the base of a context",
                    &format!("transcript {transcript}"),
                )),
            })?,
        };
        ranges.push(Range {
            transcript,
            first: context.tail_from,
            end: head.next_seq,
        });
        Ok(ranges)
    }

    /// Visits the rows of a context, in order, each with the index of its range.
    fn context_rows(
        &mut self,
        ranges: &[Range],
        mut visit: impl FnMut(usize, Opened<'_>) -> Result<()>,
    ) -> Result<()> {
        for (index, range) in ranges.iter().enumerate() {
            let positions = self.positions(*range)?;
            self.records(&positions, |record| visit(index, record))?;
        }
        Ok(())
    }

    /// The live context of a transcript, as the model would be sent it.
    pub(in crate::store) fn session(&mut self, id: u64) -> Result<SessionTranscript> {
        let transcript = self.transcript(id)?;
        let head = &transcript.head;
        Ok(SessionTranscript {
            meta: head.meta.as_ref().clone(),
            messages: self.messages(id, head)?,
            tools: self.tools(id, head)?,
        })
    }

    /// The rows of a context.
    pub(in crate::store) fn messages(
        &mut self,
        id: u64,
        head: &Head,
    ) -> Result<Vec<TranscriptMessage>> {
        self.stored_rows(id, head, |row| row.message)
    }

    /// What `take` makes of each row of a context and of what stands beside it.
    pub(in crate::store) fn stored_rows<T>(
        &mut self,
        id: u64,
        head: &Head,
        take: impl Fn(StoredRow) -> T,
    ) -> Result<Vec<T>> {
        let ranges = self.context_ranges(id, head)?;
        let mut rows = Vec::with_capacity(capacity(head.context.rows));
        self.context_rows(&ranges, |_, record| {
            if record.is_row() {
                rows.push(take(record.row()?));
            }
            Ok(())
        })?;
        if rows.len() as u64 != head.context.rows {
            return Err(missing(
                "a row of a context",
                &format!("transcript {id}: one"),
            ));
        }
        Ok(rows)
    }

    /// The tool declarations in force in a transcript.
    pub(in crate::store) fn tools(&mut self, id: u64, head: &Head) -> Result<Option<Value>> {
        match head.tools {
            None => Ok(None),
            Some(tools) => self.record_at(id, tools.seq, |record| match record.body()? {
                Body::Tools(tools) => Ok(Some(tools)),
                _ => Err(missing(
                    "the tools of a transcript",
                    &format!("transcript {id}"),
                )),
            }),
        }
    }

    /// Whether a row of a context holds an idempotency key.
    pub(in crate::store) fn holds_key(
        &mut self,
        stem: &str,
        transcript: u64,
        head: &Head,
        key: &str,
    ) -> Result<bool> {
        let Some(session) = self.stem_id(stem)? else {
            return Ok(false);
        };
        let table = self
            .snapshot
            .transaction
            .open_table(tables::IDEMPOTENCY)
            .map_err(table_error)?;
        let key = id_key(self.seed, key);
        let (first, last) = (
            (session, key.as_slice(), 0, 0),
            (session, key.as_slice(), u64::MAX, u64::MAX),
        );
        let mut ranges = None;
        for entry in table.range(first..=last).map_err(storage_error)? {
            let (entry, _) = entry.map_err(storage_error)?;
            let (_, _, holder, seq) = entry.value();
            let ranges = match &mut ranges {
                Some(ranges) => ranges,
                none => none.insert(self.context_ranges(transcript, head)?),
            };
            let live = |range: &Range| {
                range.transcript == holder && (range.first..range.end).contains(&seq)
            };
            if ranges.iter().any(live) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The live context by hashes and places, for planning.
    pub(in crate::store) fn live_rows<'r>(
        &'r mut self,
        id: u64,
        head: &Head,
    ) -> Result<LiveRows<'r, 't>> {
        let ranges = self.context_ranges(id, head)?;
        let mut places = Vec::with_capacity(capacity(head.context.rows));
        let mut joins = false;
        let mut last_range = usize::MAX;
        self.context_rows(&ranges, |range, record| {
            joins &= range == last_range;
            last_range = range;
            if record.is_row() {
                places.push(Place {
                    transcript: record.address.transcript,
                    seq: record.address.seq,
                    uuid: record.address.uuid,
                    hashes: record.hashes()?,
                    joins,
                });
                joins = true;
            } else if record.kind == Kind::MarkerPartial {
                joins = false;
            }
            Ok(())
        })?;
        if places.len() as u64 != head.context.rows {
            return Err(missing(
                "a row of a context",
                &format!("transcript {id}: one"),
            ));
        }
        let decoded = (0..places.len()).map(|_| None).collect();
        Ok(LiveRows {
            reader: self,
            places,
            decoded,
            by_identity: None,
            by_usage: None,
        })
    }
}

/// Room for the rows that a head promises, but never more than a modest amount on its word alone.
fn capacity(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX).min(1 << 16)
}

/// Where a row of the context is stored.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Place {
    pub(in crate::store) transcript: u64,
    pub(in crate::store) seq: u64,
    pub(in crate::store) uuid: u128,
    pub(in crate::store) hashes: RowHashes,
    /// Whether one range may hold this row and the one before it in the context.
    pub(in crate::store) joins: bool,
}

/// The live context as planning sees it: rows are decoded only where hashes do not answer.
pub(in crate::store) struct LiveRows<'r, 't> {
    reader: &'r mut Reader<'t>,
    places: Vec<Place>,
    decoded: Vec<Option<TranscriptMessage>>,
    by_identity: Option<HashMap<u128, Vec<usize>>>,
    by_usage: Option<HashMap<UsageKey, Vec<usize>>>,
}

impl LiveRows<'_, '_> {
    pub(in crate::store) fn place(&self, index: usize) -> Option<&Place> {
        self.places.get(index)
    }

    fn candidates(&mut self, identity: u128) -> Vec<usize> {
        let places = &self.places;
        let map = self.by_identity.get_or_insert_with(|| {
            let mut map: HashMap<u128, Vec<usize>> = HashMap::with_capacity(places.len());
            for (index, place) in places.iter().enumerate() {
                map.entry(place.hashes.identity).or_default().push(index);
            }
            map
        });
        map.get(&identity).cloned().unwrap_or_default()
    }
}

impl LiveRows<'_, '_> {
    /// The rows whose usage may be the one that `key` is of. Decodes every row once.
    fn with_usage(&mut self, key: &UsageKey) -> Result<Vec<usize>> {
        if self.by_usage.is_none() {
            let mut map: HashMap<UsageKey, Vec<usize>> = HashMap::new();
            for index in 0..self.len() {
                if let Some(key) = usage_key(self.row(index)?) {
                    map.entry(key).or_default().push(index);
                }
            }
            self.by_usage = Some(map);
        }
        let found = self.by_usage.as_ref().and_then(|map| map.get(key));
        Ok(found.cloned().unwrap_or_default())
    }
}

impl StoredRows for LiveRows<'_, '_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn row(&mut self, index: usize) -> Result<&TranscriptMessage> {
        let beyond = || missing("a row of a context", &format!("index {index}"));
        let place = self.places.get(index).ok_or_else(beyond)?;
        let slot = self.decoded.get_mut(index).ok_or_else(beyond)?;
        Ok(match slot {
            Some(row) => row,
            none => none.insert(
                self.reader
                    .record_at(place.transcript, place.seq, |record| record.row())?
                    .message,
            ),
        })
    }

    fn same_row(&mut self, index: usize, row: &TranscriptMessage) -> Result<bool> {
        let wanted = self.reader.seed.identity(&row.normalized_ref());
        let known = self.places.get(index).map(|place| place.hashes.identity());
        if known.is_some_and(|known| Identity::same(&known, &wanted)) {
            return Ok(true);
        }
        Ok(self.row(index)?.same_row_as(row))
    }

    fn find(
        &mut self,
        row: &TranscriptMessage,
        how: Match,
        taken: &[bool],
    ) -> Result<Option<usize>> {
        let free = |index: &usize| !taken.get(*index).copied().unwrap_or_default();
        let (candidates, certain) = match how {
            Match::Exact | Match::SameRequest => {
                let wanted = self.reader.seed.row(row);
                // Of a row's identity only extra content is JSON, whose hashes are canonical for the numbers we know.
                let certain = row
                    .tool_calls
                    .iter()
                    .all(|call| call.extra_content.is_none());
                let candidates = self.candidates(wanted.identity);
                if how == Match::Exact {
                    let proven = candidates.iter().copied().filter(free).find(|index| {
                        self.places.get(*index).is_some_and(|place| {
                            place.hashes.whole == wanted.whole
                                && place.hashes.identity().same(&wanted.identity())
                        })
                    });
                    if proven.is_some() {
                        return Ok(proven);
                    }
                }
                (candidates, certain)
            }
            Match::SameRequestAndUsage => match usage_key(row) {
                Some(key) => (self.with_usage(&key)?, true),
                None => return Ok(None),
            },
        };
        for index in candidates.into_iter().filter(free) {
            if matches(self.row(index)?, row, how) {
                return Ok(Some(index));
            }
        }
        if certain {
            return Ok(None);
        }
        for index in (0..self.len()).filter(free) {
            if matches(self.row(index)?, row, how) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

/// Rows whose request ids and usages are equal have equal keys. What JSON and money are equal to is left to comparison.
fn usage_key(row: &TranscriptMessage) -> Option<UsageKey> {
    let usage = row.turn_usage.as_ref()?;
    Some((
        row.request_id.clone(),
        usage.ts.clone(),
        usage.usage.input,
        usage.usage.output,
    ))
}

/// Request id, time, input and output tokens.
type UsageKey = (Option<String>, String, u64, u64);
