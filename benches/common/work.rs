//! What is written: turns of an agent.

use rand::{Rng, RngExt as _};
use transcript_redb::{
    MessageUsage, TranscriptMessage, TranscriptMeta, TranscriptToolCall, TurnUsage, UsageCostSource,
};

use crate::corpus::Text;

/// Records of a turn: a question, two calls with their results, an answer.
pub const RECORDS: usize = 6;

/// Bytes of text in each, on average; 2 KB over all.
const SIZES: [usize; RECORDS] = [400, 600, 4_800, 500, 4_500, 1_200];

/// One turn of an agent.
pub struct Turn {
    pub rows: Vec<TranscriptMessage>,
    pub usage: TurnUsage,
    pub request_id: String,
}

impl Turn {
    /// A turn that is like no other.
    pub fn new(number: usize, text: &Text, random: &mut impl Rng) -> Self {
        let mut sized = SIZES
            .map(|size| {
                let bytes = random.random_range(size / 2..size * 3 / 2);
                text.piece(random, bytes)
            })
            .into_iter();
        let mut part = || sized.next().unwrap_or_default();
        let call = |step: usize| TranscriptToolCall {
            id: format!("call_{number}_{step}"),
            name: "search_files".to_owned(),
            arguments: format!(r#"{{"query":"harbour {step}","limit":{number}}}"#),
            extra_content: None,
        };
        let rows = vec![
            TranscriptMessage::user(part()),
            TranscriptMessage::assistant_with_calls(part(), vec![call(1)]),
            TranscriptMessage::tool_result(format!("call_{number}_1"), part()),
            TranscriptMessage::assistant_with_calls(part(), vec![call(2)]),
            TranscriptMessage::tool_result(format!("call_{number}_2"), part()),
            TranscriptMessage::assistant(part()),
        ];
        let input = 1_000 + number as u64 % 1_000;
        Self {
            rows,
            usage: TurnUsage {
                provider: "acme".to_owned(),
                model: "large-2".to_owned(),
                usage: MessageUsage {
                    input,
                    output: 400,
                    cached_input: 800,
                    context_window: 200_000,
                    cost_usd: 0.012,
                    last_call_input: input,
                    last_call_output: 400,
                    cost_source: Some(UsageCostSource::Charged),
                },
                ts: "2026-01-02T03:04:05Z".to_owned(),
                reasoning_content: None,
                tool_calls: Vec::new(),
                iteration: 3,
            },
            request_id: format!("request-{number}"),
        }
    }
}

/// The rows of as many turns as it takes.
pub fn rows(count: usize, text: &Text, random: &mut impl Rng) -> Vec<TranscriptMessage> {
    (0..)
        .flat_map(|number| Turn::new(number, text, random).rows)
        .take(count)
        .collect()
}

/// Bytes of text in some rows.
pub fn text_bytes(rows: &[TranscriptMessage]) -> usize {
    rows.iter().map(|row| row.content.len()).sum()
}

/// The header that a host writes with each turn.
pub fn meta(session: usize) -> TranscriptMeta {
    TranscriptMeta::new("planner")
        .with_agent_id(format!("agent-{}", session % 10))
        .with_thread_id(thread(session))
        .with_model("large-2")
        .with_provider("acme")
}

/// The thread of a session.
pub fn thread(session: usize) -> String {
    format!("thread-{session}")
}
