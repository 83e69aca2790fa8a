//! The display: everything that was ever stored, whole or a page at a time.

use uuid::Uuid;

use super::{Reader, missing};
use crate::replay::record_time;
use crate::store::head::Range;
use crate::store::record::{Body, Kind, Marker, Opened};
use crate::{
    CompactionMarker, DisplayMessage, DisplayRecord, DisplaySessionTranscript, DisplaySlice,
    Result, UsageRecord,
};

/// How many sequences a page looks at in one go, at least.
const WINDOW: u64 = 64;

/// What a record is in the display.
enum Shown {
    Message(Box<DisplayMessage>),
    Marker(Marker, String, Uuid),
    Usage(UsageRecord),
    Nothing,
}

impl Shown {
    fn of(record: &Opened<'_>) -> Result<Self> {
        if matches!(
            record.kind,
            Kind::MarkerRow | Kind::MarkerPartial | Kind::Tools | Kind::Seal | Kind::Retained
        ) {
            return Ok(Self::Nothing);
        }
        let uuid = Uuid::from_u128(record.address.uuid);
        let ts = || record_time(record.address.at);
        Ok(match record.body()? {
            Body::Row(row) => Self::Message(Box::new(row.display())),
            Body::Marker(marker) => Self::Marker(marker, ts(), uuid),
            Body::Usage(body) => Self::Usage(UsageRecord {
                uuid,
                usage: body.usage,
                request_id: body.request_id,
                ts: Some(ts()),
            }),
            Body::Tools(_) | Body::Seal(_) | Body::Retained(_) => Self::Nothing,
        })
    }
}

impl Reader<'_> {
    /// The whole display of a transcript.
    pub(in crate::store) fn display(&mut self, id: u64) -> Result<DisplaySessionTranscript> {
        let transcript = self.transcript(id)?;
        let positions = self.positions(Range {
            transcript: id,
            first: 0,
            end: u64::MAX,
        })?;
        let mut shown = Vec::with_capacity(positions.len());
        let mut layout = None;
        self.records(&positions, |record| {
            if record.kind == Kind::Retained {
                layout = Some((record.address.seq + 1, record.body()?));
            }
            shown.push((record.address.seq, Shown::of(&record)?));
            Ok(())
        })?;
        for (seq, shown) in &mut shown {
            // Another record tells of the same call, and counts.
            if matches!(shown, Shown::Usage(_)) && self.is_superseded(id, *seq)? {
                *shown = Shown::Nothing;
            }
        }
        if let Some((mut seq, Body::Retained(ranges))) = layout {
            for range in ranges {
                if range.transcript == id {
                    seq += range.end - range.first;
                    continue;
                }
                for row in self.rows_shown(range)? {
                    shown.push((seq, Shown::Message(Box::new(row))));
                    seq += 1;
                }
            }
            shown.sort_by_key(|(seq, _)| *seq);
        }
        let mut records = Vec::with_capacity(shown.len());
        let mut unattached = Vec::new();
        for (_, shown) in shown {
            match shown {
                Shown::Message(message) => records.push(DisplayRecord::Message(message)),
                Shown::Marker(marker, ts, uuid) => {
                    records.push(DisplayRecord::Compaction(self.marker(marker, ts, uuid)?));
                }
                Shown::Usage(usage) => unattached.push(usage),
                Shown::Nothing => {}
            }
        }
        Ok(DisplaySessionTranscript {
            meta: transcript.head.meta.as_ref().clone(),
            records,
            unattached,
        })
    }

    /// The last `limit` display records before the sequence `before`, oldest first.
    pub(in crate::store) fn display_before(
        &mut self,
        id: u64,
        before: Option<u64>,
        limit: usize,
    ) -> Result<DisplaySlice> {
        let transcript = self.transcript(id)?;
        let mut end = before.unwrap_or(u64::MAX).min(transcript.head.next_seq);
        // Newest first; one more than asked for tells whether there are more.
        let mut found: Vec<(u64, DisplayRecord)> = Vec::new();
        let mut layout = None;
        while end > 0 && found.len() <= limit {
            let wanted = (limit - found.len()) as u64;
            let first = end.saturating_sub(wanted.clamp(WINDOW, 4096));
            let own = self.positions(Range {
                transcript: id,
                first,
                end,
            })?;
            let mut own = own.into_iter().rev().peekable();
            for seq in (first..end).rev() {
                let shown = match own.next_if(|(own, _)| *own == seq) {
                    Some((_, position)) => self.record(position, |record| Shown::of(&record))?,
                    None => {
                        let layout = match &mut layout {
                            Some(layout) => layout,
                            none => none.insert(self.layout(id)?),
                        };
                        let (owner, kept) = locate(layout, seq)
                            .ok_or_else(|| missing("a record", &format!("sequence {seq}")))?;
                        let row = self.record_at(owner, kept, |record| record.row())?;
                        Shown::Message(Box::new(row.display()))
                    }
                };
                let record = match shown {
                    Shown::Message(message) => DisplayRecord::Message(message),
                    Shown::Marker(..) if found.len() >= limit => {
                        // It only tells that there are more: its replacement need not be read.
                        return Ok(slice(&transcript.head.meta, found, true));
                    }
                    Shown::Marker(marker, ts, uuid) => {
                        DisplayRecord::Compaction(self.marker(marker, ts, uuid)?)
                    }
                    Shown::Usage(_) | Shown::Nothing => continue,
                };
                if found.len() >= limit {
                    return Ok(slice(&transcript.head.meta, found, true));
                }
                found.push((seq, record));
            }
            end = first;
        }
        Ok(slice(&transcript.head.meta, found, false))
    }

    /// The rows of a range as the display shows them inside a replacement.
    fn rows_shown(&mut self, range: Range) -> Result<Vec<DisplayMessage>> {
        let positions = self.positions(range)?;
        let mut rows = Vec::with_capacity(positions.len());
        self.records(&positions, |record| {
            if record.is_row() || record.kind == Kind::MarkerPartial {
                rows.push(record.row()?.display());
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn marker(&mut self, marker: Marker, ts: String, uuid: Uuid) -> Result<CompactionMarker> {
        let mut replacement = Vec::new();
        for range in marker.replacement {
            replacement.append(&mut self.rows_shown(range)?);
        }
        Ok(CompactionMarker {
            uuid,
            replacement,
            ts: Some(ts),
            request_id: marker.request_id,
            metadata: marker.metadata,
        })
    }

    /// Where the rows stand that a successor kept, by the sequence that they have in it.
    pub(in crate::store) fn layout(&mut self, id: u64) -> Result<Vec<(u64, Range)>> {
        self.record_at(id, 0, |record| match record.body()? {
            Body::Retained(ranges) => {
                let mut next = record.address.seq + 1;
                Ok(ranges
                    .into_iter()
                    .map(|range| {
                        let first = next;
                        next += range.end - range.first;
                        (first, range)
                    })
                    .collect())
            }
            _ => Err(missing("a record", &format!("transcript {id}: one"))),
        })
    }
}

/// The transcript and sequence where the row was first stored that a successor shows at `seq`.
fn locate(layout: &[(u64, Range)], seq: u64) -> Option<(u64, u64)> {
    let behind = layout.partition_point(|(first, _)| *first <= seq);
    let (first, range) = layout.get(behind.checked_sub(1)?)?;
    let kept = range.first + (seq - first);
    (kept < range.end).then_some((range.transcript, kept))
}

fn slice(
    meta: &crate::TranscriptMeta,
    mut found: Vec<(u64, DisplayRecord)>,
    more: bool,
) -> DisplaySlice {
    found.reverse();
    DisplaySlice {
        meta: meta.clone(),
        records: found,
        more,
    }
}
