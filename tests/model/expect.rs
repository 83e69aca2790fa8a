//! What a write stores, worked out anew from the rules of the contract: which rows are kept, which are revisions, where
//! each usage goes, and what is stamped. The stores share their reading of these rules; this is another one.

use std::collections::BTreeSet;

use serde_json::Value;
use transcript_redb::{
    DisplayMessage, DisplayRecord, DisplaySessionTranscript, TranscriptMessage, TranscriptPartial,
    TurnUsage,
};
use uuid::Uuid;

use super::diff::{Checked, differ, holds, same};

/// Which call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller<'a> {
    /// A turn with this request id.
    Turn(Option<&'a str>),
    /// An `append`: its row comes behind what is stored, whatever that is.
    Append,
    /// A `replace` or a `clear`.
    Replace,
}

/// What a call says.
pub struct Call<'a> {
    pub caller: Caller<'a>,
    pub rows: &'a [TranscriptMessage],
    pub usage: Option<&'a TurnUsage>,
    pub compaction: Option<&'a Value>,
    pub partial: Option<&'a TranscriptPartial>,
}

impl<'a> Call<'a> {
    pub fn new(caller: Caller<'a>, rows: &'a [TranscriptMessage]) -> Self {
        Self {
            caller,
            rows,
            usage: None,
            compaction: None,
            partial: None,
        }
    }

    fn request_id(&self) -> Option<&'a str> {
        match self.caller {
            Caller::Turn(id) => id,
            Caller::Append | Caller::Replace => None,
        }
    }
}

/// A row of a new context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept(usize),
    Revision(usize),
    New,
}

/// The live context that a display shows, by replay.
pub fn live(display: &DisplaySessionTranscript) -> Vec<&DisplayMessage> {
    let mut context = Vec::new();
    for record in &display.records {
        match record {
            DisplayRecord::Message(row) => context.push(row.as_ref()),
            DisplayRecord::Compaction(marker) => context = marker.replacement.iter().collect(),
        }
    }
    context.retain(|row| !row.interrupted);
    context
}

/// Checks what a successful write has stored, and answers what kinds of rows there were. `before` is the transcript's
/// display before, `predecessor` that of the generation before it.
pub fn check(
    call: &Call<'_>,
    before: Option<&DisplaySessionTranscript>,
    predecessor: Option<&DisplaySessionTranscript>,
    after: &DisplaySessionTranscript,
) -> Checked<BTreeSet<&'static str>> {
    let (old, old_usages) = before.map_or((&[][..], &[][..]), |it| (&*it.records, &*it.unattached));
    same(
        "the records before a write",
        old,
        after.records.get(..old.len()).unwrap_or_default(),
    )?;
    let mut new = after.records[old.len()..].to_vec();
    if let Some(partial) = call.partial.filter(|partial| !partial.content.is_empty()) {
        let Some(DisplayRecord::Message(row)) = new.pop() else {
            return Err(differ("the record of a partial", "a row", "none"));
        };
        check_partial(call, partial, &row)?;
    }

    let stored = match (before, predecessor) {
        (Some(before), _) => live(before),
        (None, predecessor) => predecessor.map(live).unwrap_or_default(),
    };
    let rows: Vec<_> = call.rows.iter().map(prepared).collect();
    let common = stored
        .iter()
        .zip(&rows)
        .take_while(|(a, b)| a.message.same_row_as(b))
        .count();
    let is_turn = matches!(call.caller, Caller::Turn(_));
    let is_append = call.caller == Caller::Append;
    let (rows, fates, compacts) = if before.is_some() && is_append {
        let fates = vec![Fate::New; rows.len()];
        (rows, fates, false)
    } else if before.is_some() && is_turn && common == stored.len() {
        let added = rows[common..].to_vec();
        let fates = vec![Fate::New; added.len()];
        (added, fates, false)
    } else if before.is_none() && predecessor.is_none() {
        let fates = vec![Fate::New; rows.len()];
        (rows, fates, false)
    } else {
        let fates = fates(&stored, &rows);
        (rows, fates, before.is_some())
    };

    let shown: Vec<DisplayMessage> = if compacts {
        let [DisplayRecord::Compaction(marker)] = &*new else {
            return Err(differ("a compaction", "one marker", &format!("{new:?}")));
        };
        let request = call.request_id();
        same(
            "the request id of a marker",
            &request,
            &marker.request_id.as_deref(),
        )?;
        same(
            "the metadata of a marker",
            &call.compaction,
            &marker.metadata.as_ref(),
        )?;
        marker.replacement.clone()
    } else {
        let rows = new.into_iter().map(|record| match record {
            DisplayRecord::Message(row) => Ok(*row),
            DisplayRecord::Compaction(marker) => {
                Err(differ("an addition", "rows", &format!("{marker:?}")))
            }
        });
        rows.collect::<Checked<_>>()?
    };
    same("the number of rows", &rows.len(), &shown.len())?;
    let usages = check_rows(call, &stored, &rows, &fates, &shown)?;
    let found: Vec<_> = after.unattached[old_usages.len()..]
        .iter()
        .map(|it| (it.usage.clone(), it.request_id.clone()))
        .collect();
    same("the usages that stand alone", &usages, &found)?;
    Ok(kinds(&fates, compacts, before.is_none(), &found))
}

/// What kinds of writes a run should meet.
fn kinds<T>(fates: &[Fate], marked: bool, first: bool, usages: &[T]) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    let mut note = |holds: bool, what| {
        if holds {
            kinds.insert(what);
        }
    };
    let kept: Vec<usize> = fates
        .iter()
        .filter_map(|fate| match fate {
            Fate::Kept(index) => Some(*index),
            _ => None,
        })
        .collect();
    let gaps = kept.windows(2).filter(|it| it[0] + 1 != it[1]).count();
    let revised = fates.iter().any(|it| matches!(it, Fate::Revision(_)));
    note(marked, "a marker");
    note(marked && !kept.is_empty(), "a marker with kept rows");
    note(first && !kept.is_empty(), "a successor with kept rows");
    note(revised, "a revision");
    note(!kept.is_sorted(), "kept rows in another order");
    note(gaps > 8, "a context of many ranges");
    note(!usages.is_empty(), "a usage that stands alone");
    kinds
}

/// Checks the rows one by one; answers the usages that have to stand alone.
fn check_rows(
    call: &Call<'_>,
    stored: &[&DisplayMessage],
    rows: &[TranscriptMessage],
    fates: &[Fate],
    shown: &[DisplayMessage],
) -> Checked<Vec<(TurnUsage, Option<String>)>> {
    let known: BTreeSet<Uuid> = stored.iter().map(|row| row.uuid).collect();
    let is_answer = |index: &usize| {
        let row = &rows[*index];
        fates[*index] == Fate::New && row.role == "assistant" && !row.interrupted
    };
    let answers: Vec<usize> = (0..rows.len()).filter(is_answer).collect();
    let steps = steps(call, rows, &answers);
    let mut usages = Vec::new();
    for (index, (row, fate)) in rows.iter().zip(fates).enumerate() {
        let found = &shown[index];
        let what = format!("row {index}, {fate:?}");
        let mut expected = row.clone();
        expected.preserve_request_id = true;
        match *fate {
            Fate::Kept(kept) => {
                same(&what, stored[kept], found)?;
                continue;
            }
            Fate::Revision(revised) => {
                same(&what, &Some(stored[revised].uuid), &found.revises)?;
            }
            Fate::New => {
                same(&what, &None, &found.revises)?;
                if let Caller::Turn(id) = call.caller
                    && !row.preserve_request_id
                {
                    expected.request_id = id.map(str::to_owned);
                }
                let own = row.turn_usage.clone();
                let alone = if answers.last() == Some(&index) && call.usage.is_some() {
                    expected.turn_usage = call.usage.cloned();
                    own.filter(|own| Some(own) != call.usage)
                } else if row.role == "assistant" || row.interrupted {
                    None
                } else {
                    expected.turn_usage = None;
                    own
                };
                usages.extend(alone.map(|usage| (usage, expected.request_id.clone())));
            }
        }
        holds(!known.contains(&found.uuid), || {
            format!("{what} has the id of a stored row")
        })?;
        same(&what, &expected, &found.message)?;
        let usage = expected.turn_usage.as_ref();
        let of_usage = usage.map(|usage| usage.iteration).filter(|it| *it > 0);
        same(
            &format!("the step of {what}"),
            &steps[index].or(of_usage),
            &found.iteration,
        )?;
        let stamp = call
            .usage
            .map(|usage| &usage.ts)
            .filter(|_| steps[index].is_some());
        let times = [stamp, usage.map(|usage| &usage.ts)];
        let expected = times.into_iter().flatten().find(|ts| !ts.is_empty());
        let shows_write = expected.is_none() && call.caller == Caller::Append;
        same(
            &format!("whether {what} shows its write"),
            &shows_write,
            &(expected != found.ts.as_ref()),
        )?;
    }
    if let Some(usage) = call.usage
        && answers.is_empty()
    {
        usages.push((usage.clone(), call.request_id().map(str::to_owned)));
    }
    Ok(usages)
}

/// The step that each row is stamped with.
fn steps(call: &Call<'_>, rows: &[TranscriptMessage], answers: &[usize]) -> Vec<Option<u32>> {
    let mut steps = vec![None; rows.len()];
    let iteration = call.usage.map_or(0, |usage| usage.iteration);
    let Some((&last, earlier)) = answers.split_last() else {
        return steps;
    };
    if iteration == 0 || rows[last].preserve_request_id {
        return steps;
    }
    let user = rows[..last].iter().rposition(|row| row.role == "user");
    let before: Vec<_> = earlier
        .iter()
        .filter(|it| user.is_none_or(|user| **it > user))
        .collect();
    for (i, index) in before.iter().enumerate() {
        let behind = i64::try_from(before.len() - i).expect("few");
        let step = (i64::from(iteration) - behind).max(1);
        steps[**index] = Some(u32::try_from(step).expect("a step"));
    }
    steps
}

fn fates(stored: &[&DisplayMessage], rows: &[TranscriptMessage]) -> Vec<Fate> {
    let mut fates = vec![Fate::New; rows.len()];
    let mut free = vec![true; stored.len()];
    let mut take = |accepts: &dyn Fn(&TranscriptMessage) -> bool| {
        let found =
            (0..stored.len()).find(|index| free[*index] && accepts(&stored[*index].message));
        found.inspect(|index| free[*index] = false)
    };
    let from_read = |row: &TranscriptMessage| row.preserve_request_id && !row.interrupted;
    for (row, fate) in rows
        .iter()
        .zip(&mut fates)
        .filter(|(row, _)| from_read(row))
    {
        let kept = take(&|stored| {
            let around = |it: &TranscriptMessage| {
                (
                    it.request_id.clone(),
                    it.turn_usage.clone(),
                    it.tool_failure.clone(),
                    it.extra_metadata.clone(),
                    it.cache_breakpoints.clone(),
                )
            };
            stored.same_row_as(row) && around(stored) == around(row)
        });
        if let Some(kept) = kept {
            *fate = Fate::Kept(kept);
        }
    }
    for (row, fate) in rows
        .iter()
        .zip(&mut fates)
        .filter(|(row, _)| from_read(row))
    {
        if *fate != Fate::New {
            continue;
        }
        let same_request = |stored: &TranscriptMessage| stored.request_id == row.request_id;
        let revised =
            take(&|stored| stored.same_row_as(row) && same_request(stored)).or_else(|| {
                let usage = row.turn_usage.as_ref()?;
                take(&|stored| stored.turn_usage.as_ref() == Some(usage) && same_request(stored))
            });
        if let Some(revised) = revised {
            *fate = Fate::Revision(revised);
        }
    }
    fates
}

/// A row as it is stored: lifted, and without a failure or metadata that are none.
fn prepared(row: &TranscriptMessage) -> TranscriptMessage {
    let mut row = row.normalized();
    row.tool_failure = row.tool_failure.filter(|failure| failure.failed);
    row.extra_metadata = row
        .extra_metadata
        .filter(|metadata| *metadata != Value::Null);
    row
}

fn check_partial(call: &Call<'_>, partial: &TranscriptPartial, found: &DisplayMessage) -> Checked {
    let reasoning = partial.reasoning_content.as_deref().map(str::trim);
    let expected = (
        "assistant",
        partial.content.as_str(),
        reasoning.filter(|text| !text.is_empty()),
        call.request_id(),
        partial.iteration.filter(|iteration| *iteration > 0),
        (true, true, true, false),
    );
    let shown = (
        found.message.role.as_str(),
        found.message.content.as_str(),
        found.reasoning_content.as_deref(),
        found.request_id.as_deref(),
        found.iteration,
        (
            found.interrupted,
            found.message.interrupted,
            found.ts.is_some(),
            found.turn_usage.is_some(),
        ),
    );
    same("a partial", &expected, &shown)
}
