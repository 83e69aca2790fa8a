//! What is stamped on the rows that a call newly stores, and where its usage goes.

use std::borrow::Cow;

use super::retain::Fate;
use super::{ContextPlan, PlannedRow, PlannedUsage, Slot};
use crate::{TranscriptMessage, TurnUsage};

/// What a call brings beside its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp<'a> {
    /// The usage of the call.
    pub(crate) usage: Option<&'a TurnUsage>,
    /// Where the request id of a new row comes from.
    pub(crate) request_id: RequestId<'a>,
}

/// Where the request id of a new row comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestId<'a> {
    /// A turn: the call's id, even when it has none; a row that preserves its own keeps it, even when it has none.
    Call(Option<&'a str>),
    /// `append` and `replace`: the row's own.
    AsGiven,
}

impl Stamp<'_> {
    /// Nothing is stamped: `append`, `replace` and background appends.
    pub(crate) const AS_GIVEN: Self = Self {
        usage: None,
        request_id: RequestId::AsGiven,
    };
}

/// Turns prepared `rows` and their fates into what is stored. Rows beyond the end of `fates` are new.
pub(super) fn plan(
    rows: Vec<Cow<'_, TranscriptMessage>>,
    fates: &[Fate],
    stamp: &Stamp<'_>,
) -> ContextPlan {
    let fates = || fates.iter().copied().chain(std::iter::repeat(Fate::New));
    // A partial is no answer: what is in it never counts, so the call's usage must not end there.
    let answers: Vec<bool> = rows
        .iter()
        .zip(fates())
        .map(|(row, fate)| fate == Fate::New && row.role == ASSISTANT && !row.interrupted)
        .collect();
    let last_answer = answers.iter().rposition(|&answer| answer);
    let iterations = step_iterations(&rows, &answers, stamp.usage);
    let step_time = stamp
        .usage
        .map(|usage| &usage.ts)
        .filter(|ts| !ts.is_empty());

    let mut plan = ContextPlan::default();
    let rows = rows.into_iter().zip(fates()).zip(iterations);
    for (index, ((row, fate), iteration)) in rows.enumerate() {
        if let Fate::Kept(kept) = fate {
            plan.context.push(Slot::Kept(kept));
            continue;
        }
        let mut message = row.into_owned();
        let revises = match fate {
            Fate::Kept(_) => None,
            // A revision reads back as given.
            Fate::Revision(revised) => Some(revised),
            Fate::New => {
                stamp_request_id(&mut message, stamp.request_id);
                let call_usage = stamp.usage.filter(|_| last_answer == Some(index));
                plan.usage.extend(settle_usage(&mut message, call_usage));
                None
            }
        };
        message.preserve_request_id = true;
        plan.context.push(Slot::New(plan.rows.len()));
        plan.rows.push(PlannedRow {
            message,
            iteration,
            ts: iteration.and_then(|_| step_time.cloned()),
            revises,
        });
    }
    if let (Some(usage), None) = (stamp.usage, last_answer) {
        let request_id = match stamp.request_id {
            RequestId::Call(id) => id.map(str::to_owned),
            RequestId::AsGiven => None,
        };
        plan.usage.push(PlannedUsage {
            usage: usage.clone(),
            request_id,
        });
    }
    plan
}

/// The iterations of the answers that led to the last one, which has its own in its usage.
///
/// They are the answers since the last user row, numbered backwards from the call's iteration; the walk is backwards
/// too. A last answer that came from a read was numbered when it was first stored.
fn step_iterations(
    rows: &[Cow<'_, TranscriptMessage>],
    answers: &[bool],
    usage: Option<&TurnUsage>,
) -> Vec<Option<u32>> {
    let mut iterations = vec![None; rows.len()];
    let last_iteration = usage.map_or(0, |usage| usage.iteration);
    let Some(last) = answers.iter().rposition(|&answer| answer) else {
        return iterations;
    };
    let fresh = rows.get(last).is_some_and(|row| !row.preserve_request_id);
    if last_iteration == 0 || !fresh {
        return iterations;
    }
    let steps = rows
        .iter()
        .zip(answers)
        .zip(&mut iterations)
        .take(last)
        .rev()
        .take_while(|((row, _), _)| row.role != USER)
        .filter(|((_, answer), _)| **answer);
    for ((_, iteration), back) in steps.zip(1..) {
        *iteration = Some(last_iteration.saturating_sub(back).max(1));
    }
    iterations
}

fn stamp_request_id(message: &mut TranscriptMessage, request_id: RequestId<'_>) {
    if let RequestId::Call(id) = request_id
        && !message.preserve_request_id
    {
        message.request_id = id.map(str::to_owned);
    }
}

/// Puts the usage that a new row ends up with on it, and returns the one that needs a record of its own.
fn settle_usage(
    message: &mut TranscriptMessage,
    call_usage: Option<&TurnUsage>,
) -> Option<PlannedUsage> {
    let displaced = if let Some(usage) = call_usage {
        let own = message.turn_usage.replace(usage.clone());
        own.filter(|own| own != usage)
    } else if message.role == ASSISTANT || message.interrupted {
        None
    } else {
        message.turn_usage.take()
    };
    displaced.map(|usage| PlannedUsage {
        usage,
        request_id: message.request_id.clone(),
    })
}

const ASSISTANT: &str = "assistant";
const USER: &str = "user";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageUsage;
    use crate::turn::plan_rows;

    fn usage(input: u64, iteration: u32) -> TurnUsage {
        TurnUsage {
            usage: MessageUsage {
                input,
                ..MessageUsage::default()
            },
            ts: "2026-01-02T03:04:05Z".to_owned(),
            iteration,
            ..TurnUsage::default()
        }
    }

    fn assistant(content: &str, usage: Option<TurnUsage>) -> TranscriptMessage {
        TranscriptMessage {
            turn_usage: usage,
            ..TranscriptMessage::assistant(content)
        }
    }

    fn call(usage: Option<&TurnUsage>) -> Stamp<'_> {
        Stamp {
            usage,
            request_id: RequestId::Call(Some("call")),
        }
    }

    fn iterations(rows: &[TranscriptMessage], iteration: u32) -> Vec<Option<u32>> {
        let usage = usage(1, iteration);
        let plan = plan_rows(rows, &call(Some(&usage)));
        plan.rows.iter().map(|row| row.iteration).collect()
    }

    #[test]
    fn the_call_s_usage_goes_to_the_last_new_answer() {
        let used = usage(7, 0);
        let rows = [
            assistant("a", None),
            assistant("b", None),
            TranscriptMessage::user("c"),
        ];
        let plan = plan_rows(&rows, &call(Some(&used)));
        let carriers: Vec<_> = plan
            .rows
            .iter()
            .map(|row| row.message.turn_usage.clone())
            .collect();
        assert_eq!(carriers, [None, Some(used), None]);
        assert_eq!(plan.usage, []);
    }

    #[test]
    fn no_usage_is_dropped_when_a_row_has_another_one_or_cannot_carry_it() {
        let (used, own) = (usage(7, 0), usage(1, 0));
        let question = TranscriptMessage {
            turn_usage: Some(usage(2, 0)),
            ..TranscriptMessage::user("q")
        };
        let plan = plan_rows(
            &[question.clone(), assistant("a", Some(own.clone()))],
            &call(Some(&used)),
        );
        assert_eq!(plan.rows[0].message.turn_usage, None);
        assert_eq!(plan.rows[1].message.turn_usage, Some(used.clone()));
        let records: Vec<_> = plan
            .usage
            .iter()
            .map(|record| record.usage.usage.input)
            .collect();
        assert_eq!(records, [2, 1]);
        assert!(
            plan.usage
                .iter()
                .all(|record| record.request_id.as_deref() == Some("call"))
        );

        let plan = plan_rows(&[question], &call(Some(&used)));
        let records: Vec<_> = plan
            .usage
            .iter()
            .map(|record| record.usage.usage.input)
            .collect();
        assert_eq!(records, [2, 7], "the call's own comes last");
    }

    #[test]
    fn an_equal_usage_on_the_row_and_the_call_is_one() {
        let used = usage(7, 0);
        let plan = plan_rows(&[assistant("a", Some(used.clone()))], &call(Some(&used)));
        assert_eq!(plan.rows[0].message.turn_usage, Some(used));
        assert_eq!(plan.usage, []);
    }

    #[test]
    fn usage_never_ends_on_a_partial() {
        let used = usage(7, 0);
        let partial = TranscriptMessage {
            interrupted: true,
            ..TranscriptMessage::assistant("half")
        };
        let plan = plan_rows(&[partial], &call(Some(&used)));
        assert_eq!(plan.rows[0].message.turn_usage, None);
        assert_eq!(plan.usage.len(), 1);
    }

    #[test]
    fn a_row_that_preserves_its_request_id_keeps_even_none() {
        let kept = TranscriptMessage {
            preserve_request_id: true,
            ..TranscriptMessage::user("kept")
        };
        let plan = plan_rows(&[kept, TranscriptMessage::user("fresh")], &call(None));
        let ids: Vec<_> = plan
            .rows
            .iter()
            .map(|row| row.message.request_id.as_deref())
            .collect();
        assert_eq!(ids, [None, Some("call")]);
        assert!(plan.rows.iter().all(|row| row.message.preserve_request_id));
    }

    #[test]
    fn as_given_means_the_row_s_own_request_id() {
        let row = TranscriptMessage {
            request_id: Some("own".to_owned()),
            ..TranscriptMessage::user("q")
        };
        let plan = plan_rows(&[row], &Stamp::AS_GIVEN);
        assert_eq!(plan.rows[0].message.request_id.as_deref(), Some("own"));
    }

    #[test]
    fn steps_are_numbered_backwards_from_the_last_answer_and_never_below_one() {
        let rows = [
            assistant("old", None),
            TranscriptMessage::user("q"),
            assistant("one", None),
            TranscriptMessage::tool("r"),
            assistant("two", None),
            TranscriptMessage::tool("r"),
            assistant("three", None),
        ];
        let none = None;
        let with = |first, second| vec![none, none, Some(first), none, Some(second), none, none];
        assert_eq!(iterations(&rows, 9), with(7, 8));
        assert_eq!(iterations(&rows, 3), with(1, 2));
        assert_eq!(iterations(&rows, 2), with(1, 1));
        assert_eq!(iterations(&rows, 1), with(1, 1));
        assert_eq!(iterations(&rows, 0), [None; 7]);
    }

    #[test]
    fn steps_carry_the_time_of_the_call_s_usage_if_it_has_one() {
        let rows = [assistant("one", None), assistant("two", None)];
        let mut used = usage(1, 2);
        let plan = plan_rows(&rows, &call(Some(&used)));
        assert_eq!(plan.rows[0].ts.as_deref(), Some("2026-01-02T03:04:05Z"));
        assert_eq!(plan.rows[1].ts, None);
        used.ts.clear();
        let plan = plan_rows(&rows, &call(Some(&used)));
        assert_eq!((plan.rows[0].iteration, &plan.rows[0].ts), (Some(1), &None));
    }

    #[test]
    fn an_answer_that_came_from_a_read_stamps_no_steps() {
        let read = TranscriptMessage {
            preserve_request_id: true,
            ..TranscriptMessage::assistant("two")
        };
        assert_eq!(iterations(&[assistant("one", None), read], 5), [None, None]);
    }

    #[test]
    fn kept_rows_and_revisions_are_neither_stamped_nor_counted_as_steps() {
        let used = usage(1, 5);
        let rows = vec![
            assistant("new", None),
            assistant("kept", None),
            assistant("revision", Some(usage(3, 0))),
            assistant("last", None),
            assistant("kept too", None),
        ];
        let fates = [
            Fate::New,
            Fate::Kept(4),
            Fate::Revision(2),
            Fate::New,
            Fate::Kept(1),
        ];
        let plan = plan(
            rows.into_iter().map(Cow::Owned).collect(),
            &fates,
            &call(Some(&used)),
        );
        assert_eq!(
            plan.context,
            [
                Slot::New(0),
                Slot::Kept(4),
                Slot::New(1),
                Slot::New(2),
                Slot::Kept(1)
            ]
        );
        let iterations: Vec<_> = plan.rows.iter().map(|row| row.iteration).collect();
        assert_eq!(iterations, [Some(4), None, None]);
        assert_eq!(
            plan.rows[1].message.request_id, None,
            "a revision reads back as given"
        );
        assert_eq!(plan.rows[1].counted_usage(), None);
        assert_eq!(plan.rows[2].counted_usage(), Some(&used));
    }
}
