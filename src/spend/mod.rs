//! What transcripts and threads used and cost.
//!
//! Tokens are summed saturating. Money is summed exactly, in units of 10^-12 of a dollar to which each usage's cost is
//! rounded half to even, and becomes a floating-point number only in the answer: a total does not depend on the order
//! in which its parts were added.

mod tally;
mod thread;

pub(crate) use tally::{Money, SpendTally, usage_hour};
pub(crate) use thread::{Counted, RootPart, SubagentPart, fold_thread, walk_thread};

use crate::{
    Result, SessionTranscript, ThreadSpend, TranscriptLocator, TranscriptSpend, TurnUsage,
};

/// The spend of a transcript's live context: each row's usage, in order.
///
/// A usage of a turn that only records calls (it has tool calls, no token and no cost) is skipped. The model falls
/// back to the header's. For the whole history, rows that were compacted away included, see [`thread_spend_in`].
///
/// Costs one pass over the rows.
#[must_use]
pub fn transcript_spend(transcript: &SessionTranscript) -> TranscriptSpend {
    let mut tally = SpendTally::default();
    for usage in transcript
        .messages
        .iter()
        .filter_map(|row| row.turn_usage.as_ref())
    {
        tally.add(usage);
    }
    tally.to_spend(transcript.meta.model.as_deref())
}

/// How many tokens of the context window a turn filled: those of its final provider call, and where they are unknown
/// the turn's totals over its steps, on average.
#[must_use]
pub fn context_tokens_of(usage: &TurnUsage) -> u64 {
    let totals = &usage.usage;
    if totals.last_call_input > 0 {
        return totals
            .last_call_input
            .saturating_add(totals.last_call_output);
    }
    totals.input.saturating_add(totals.output) / steps(usage)
}

/// The spend of a thread over its full history, as the store answers it: [`TranscriptLocator::thread_spend`].
///
/// A blank or unknown thread has spent nothing.
pub fn thread_spend_in(locator: &dyn TranscriptLocator, thread_id: &str) -> Result<ThreadSpend> {
    locator.thread_spend(thread_id)
}

/// The two components of [`context_tokens_of`], each with the fallback of the sum.
fn context_components_of(usage: &TurnUsage) -> (u64, u64) {
    let totals = &usage.usage;
    if totals.last_call_input > 0 {
        return (totals.last_call_input, totals.last_call_output);
    }
    (totals.input / steps(usage), totals.output / steps(usage))
}

fn steps(usage: &TurnUsage) -> u64 {
    u64::from(usage.iteration.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessageUsage, TranscriptMessage, TranscriptMeta};

    fn usage(input: u64, cost_usd: f64) -> TurnUsage {
        TurnUsage {
            usage: MessageUsage {
                input,
                cost_usd,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        }
    }

    #[test]
    fn the_context_is_the_last_call_s_else_the_average_of_the_steps() {
        let mut used = TurnUsage {
            usage: MessageUsage {
                input: 90,
                output: 11,
                ..MessageUsage::default()
            },
            iteration: 4,
            ..TurnUsage::default()
        };
        assert_eq!(
            (context_tokens_of(&used), context_components_of(&used)),
            (25, (22, 2))
        );
        used.iteration = 0;
        assert_eq!(
            (context_tokens_of(&used), context_components_of(&used)),
            (101, (90, 11))
        );
        used.usage.last_call_output = 5;
        assert_eq!(
            context_tokens_of(&used),
            101,
            "an output alone is no last call"
        );
        used.usage.last_call_input = 30;
        assert_eq!(
            (context_tokens_of(&used), context_components_of(&used)),
            (35, (30, 5))
        );
    }

    #[test]
    fn a_live_context_s_model_falls_back_to_the_header_s() {
        let mut transcript = SessionTranscript {
            meta: TranscriptMeta::new("agent").with_model("from header"),
            messages: vec![TranscriptMessage::assistant("a").with_turn_usage(usage(1, 0.5))],
            tools: None,
        };
        assert_eq!(
            transcript_spend(&transcript).model.as_deref(),
            Some("from header")
        );
        let mut named = usage(1, 0.5);
        named.model = "named".to_owned();
        transcript
            .messages
            .push(TranscriptMessage::assistant("b").with_turn_usage(named));
        let spend = transcript_spend(&transcript);
        assert_eq!((spend.model.as_deref(), spend.turns), (Some("named"), 2));
    }
}
