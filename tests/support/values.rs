//! Literal values that the tests share.

use transcript_redb::{MessageUsage, TranscriptMeta, TurnUsage, UsageCostSource};

/// A meta that is the same in every run.
pub fn meta(agent: &str, thread: &str) -> TranscriptMeta {
    TranscriptMeta::new(agent)
        .with_agent_id(format!("{agent}-id"))
        .with_thread_id(thread)
        .with_created("2026-12-01T00:00:00Z")
        .with_updated("2026-12-01T00:00:00Z")
}

/// The usage of a turn.
pub fn usage(input: u64) -> TurnUsage {
    TurnUsage {
        provider: "acme".to_owned(),
        model: "acme-1".to_owned(),
        usage: MessageUsage {
            input,
            output: input / 10,
            cost_usd: 0.001,
            cost_source: Some(UsageCostSource::Charged),
            ..MessageUsage::default()
        },
        iteration: 2,
        ..TurnUsage::default()
    }
}
