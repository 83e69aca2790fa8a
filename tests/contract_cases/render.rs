//! What a store shows, as lines that a case can state.
//!
//! A record is `#n`, numbered over all generations by its first appearance; two numbers are two identities, one number
//! is one. A row is shown whole where it first appears and as `#n` alone where it appears again unchanged:
//!
//! ```text
//! #1 u question
//! #2 a answer | req=r use=10/5$0.5C
//! = compaction | req=r known={"trigger":"auto"}
//! | #3 a summary
//! | #2
//! + #4 use=1/1 | req=r
//! ```
//!
//! `=` is a marker, `|` a row of its replacement, `+` a usage record. Attributes that say nothing are left out:
//! `revises=#n`, `interrupted`, `id=`, `req=`, `use=`, `step=`, `ts=` (`now` is the time of the write), `why=` (the
//! reasoning), `calls=`, `answers=`, `parts=`, `fails=`, `from=` (the background origin), `meta=`, `breaks=`.

use std::fmt::Write;

use jiff::Timestamp;
use transcript_redb::{
    CompactionMarker, CostSplit, DisplayMessage, DisplayRecord, DisplaySessionTranscript,
    ThreadSpend, TranscriptSpend, TurnUsage, UsageCostSource, UsageRecord,
};
use uuid::Uuid;

/// Numbers the records of a store.
pub struct Renderer {
    seen: Vec<(Uuid, String)>,
    /// Every time that a store gives lies in here.
    started: Timestamp,
}

impl Renderer {
    pub fn new(started: Timestamp) -> Self {
        Self {
            seen: Vec::new(),
            started,
        }
    }

    pub fn display(&mut self, display: &DisplaySessionTranscript) -> Vec<String> {
        let mut lines = Vec::new();
        for record in &display.records {
            match record {
                DisplayRecord::Message(row) => lines.push(self.row(row)),
                DisplayRecord::Compaction(marker) => {
                    lines.push(self.marker(marker));
                    for row in &marker.replacement {
                        lines.push(format!("| {}", self.row(row)));
                    }
                }
            }
        }
        for record in &display.unattached {
            lines.push(self.usage_record(record));
        }
        lines
    }

    /// The numbers of records that were shown before.
    pub fn numbers(&self, uuids: impl IntoIterator<Item = Uuid>) -> String {
        let numbers: Vec<_> = uuids.into_iter().map(|uuid| self.number(uuid)).collect();
        numbers.join(" ")
    }

    fn number(&self, uuid: Uuid) -> String {
        match self.seen.iter().position(|(seen, _)| *seen == uuid) {
            Some(place) => format!("#{}", place + 1),
            None => format!("#unknown:{uuid}"),
        }
    }

    fn row(&mut self, row: &DisplayMessage) -> String {
        let text = self.row_text(row);
        match self.seen.iter().find(|(seen, _)| *seen == row.uuid) {
            Some((_, before)) if *before == text => self.number(row.uuid),
            // The same identity with other contents is shown whole, so that it differs from what a case states.
            Some(_) => format!("{} {text}", self.number(row.uuid)),
            None => {
                self.seen.push((row.uuid, text.clone()));
                format!("{} {text}", self.number(row.uuid))
            }
        }
    }

    fn row_text(&self, row: &DisplayMessage) -> String {
        let message = &row.message;
        assert_eq!(row.request_id, message.request_id);
        assert_eq!(row.turn_usage, message.turn_usage);
        assert_eq!(row.interrupted, message.interrupted);
        assert!(
            message.preserve_request_id,
            "a row that is read claims its request id"
        );
        let mut attributes = Vec::new();
        let mut say = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                attributes.push(format!("{name}={value}"));
            }
        };
        say("revises", row.revises.map(|uuid| self.number(uuid)));
        say("interrupted", row.interrupted.then(|| "yes".into()));
        say("id", message.id.clone());
        say("req", message.request_id.clone());
        say("use", message.turn_usage.as_ref().map(usage));
        say("step", row.iteration.map(|step| step.to_string()));
        say("ts", row.ts.as_deref().map(|ts| self.time(ts)));
        say("why", row.reasoning_content.clone());
        let calls: Vec<_> = message.tool_calls.iter().map(|call| &*call.id).collect();
        say("calls", (!calls.is_empty()).then(|| calls.join(",")));
        say("answers", message.tool_call_id.clone());
        say(
            "parts",
            message.parts.as_ref().map(|parts| parts.len().to_string()),
        );
        let detail = row.failure_detail.clone().unwrap_or_default();
        say("fails", row.failure.then_some(detail));
        say(
            "from",
            row.background
                .as_ref()
                .map(|origin| format!("{}:{}", origin.idempotency_key, origin.provenance)),
        );
        // The origin is part of the metadata; where it is all of them, it has been said.
        let metadata = message.extra_metadata.as_ref();
        let only_origin = row.background.is_some()
            && metadata.is_some_and(|value| value.as_object().is_some_and(|map| map.len() == 1));
        say(
            "meta",
            metadata.filter(|_| !only_origin).map(ToString::to_string),
        );
        let breaks = &message.cache_breakpoints;
        say(
            "breaks",
            (!breaks.is_empty()).then(|| format!("{breaks:?}")),
        );
        let role = match message.role.as_str() {
            "system" => "s",
            "user" => "u",
            "assistant" => "a",
            "tool" => "t",
            other => other,
        };
        line(&format!("{role} {}", message.content), &attributes)
    }

    fn marker(&mut self, marker: &CompactionMarker) -> String {
        let ts = marker.ts.as_deref().expect("a marker has a time");
        assert_eq!(self.time(ts), "now", "a marker has the time of its write");
        let known_before = self.seen.iter().any(|(seen, _)| *seen == marker.uuid);
        assert!(!known_before, "a marker has an identity of its own");
        let mut attributes = Vec::new();
        attributes.extend(marker.request_id.as_ref().map(|id| format!("req={id}")));
        attributes.extend(
            marker
                .metadata
                .as_ref()
                .map(|known| format!("known={known}")),
        );
        line("= compaction", &attributes)
    }

    fn usage_record(&mut self, record: &UsageRecord) -> String {
        let known_before = self.seen.iter().any(|(seen, _)| *seen == record.uuid);
        assert!(!known_before, "a usage record has an identity of its own");
        self.seen.push((record.uuid, String::new()));
        let text = format!(
            "+ {} use={}",
            self.number(record.uuid),
            usage(&record.usage)
        );
        let request = record.request_id.as_ref().map(|id| format!("req={id}"));
        line(&text, &Vec::from_iter(request))
    }

    fn time(&self, ts: &str) -> String {
        let now = ts
            .parse::<Timestamp>()
            .is_ok_and(|ts| (self.started..=Timestamp::now()).contains(&ts));
        if now { "now".into() } else { ts.into() }
    }
}

fn line(text: &str, attributes: &[String]) -> String {
    if attributes.is_empty() {
        text.to_owned()
    } else {
        format!("{text} | {}", attributes.join(" "))
    }
}

/// `in/out`, then what is more than that: `(cached)`, `$cost` with the letter of its source, and in words.
fn usage(usage: &TurnUsage) -> String {
    let totals = &usage.usage;
    let mut text = format!("{}/{}", totals.input, totals.output);
    let mut say = |part: String| text.push_str(&part);
    if totals.cached_input > 0 {
        say(format!("({})", totals.cached_input));
    }
    if totals.cost_usd != 0.0 || totals.cost_source.is_some() {
        say(format!(
            "${}{}",
            totals.cost_usd,
            source(totals.cost_source)
        ));
    }
    if (totals.last_call_input, totals.last_call_output) != (0, 0) {
        say(format!(
            ",last:{}/{}",
            totals.last_call_input, totals.last_call_output
        ));
    }
    if totals.context_window > 0 {
        say(format!(",window:{}", totals.context_window));
    }
    if !usage.model.is_empty() {
        say(format!(",model:{}", usage.model));
    }
    if usage.iteration > 0 {
        say(format!(",step:{}", usage.iteration));
    }
    if !usage.ts.is_empty() {
        say(format!(",at:{}", usage.ts));
    }
    if !usage.tool_calls.is_empty() {
        say(format!(",calls:{}", usage.tool_calls.len()));
    }
    text
}

fn source(source: Option<UsageCostSource>) -> &'static str {
    match source {
        Some(UsageCostSource::Charged) => "C",
        Some(UsageCostSource::Estimated) => "E",
        Some(UsageCostSource::Unknown) => "U",
        None => "",
    }
}

/// `2 turns 30/7(4) $0.5C last 20/2`. The money is followed by its split unless all of it is priced; the context is
/// named where it is not just the last turn's totals.
pub fn spend(spend: &TranscriptSpend) -> String {
    if *spend == TranscriptSpend::default() {
        return "nothing".into();
    }
    let mut text = format!(
        "{} turn{} {}/{}",
        spend.turns,
        if spend.turns == 1 { "" } else { "s" },
        spend.input_tokens,
        spend.output_tokens
    );
    let mut say = |part: String| text.push_str(&part);
    if spend.cached_input_tokens > 0 {
        say(format!("({})", spend.cached_input_tokens));
    }
    say(format!(" ${}", spend.cost_usd));
    say(split(spend.cost_usd, &spend.cost_split));
    say(format!(
        " last {}/{}",
        spend.last_input_tokens, spend.last_output_tokens
    ));
    let context = (
        spend.last_context_input_tokens,
        spend.last_context_output_tokens,
    );
    let last = (spend.last_input_tokens, spend.last_output_tokens);
    if context != last || spend.last_context_tokens != last.0.saturating_add(last.1) {
        say(format!(
            " context {}={}+{}",
            spend.last_context_tokens, context.0, context.1
        ));
    }
    if let Some(model) = &spend.model {
        say(format!(" model {model}"));
    }
    if spend.context_window > 0 {
        say(format!(" window {}", spend.context_window));
    }
    text
}

#[expect(
    clippy::float_cmp,
    reason = "what is said is whether the two numbers are the same"
)]
fn split(cost: f64, split: &CostSplit) -> String {
    let mut text = String::new();
    if split.priced_cost_usd == cost && split.unpriced_turns == 0 {
        text.push_str(source(split.priced_source));
    } else if split.priced_source.is_some() {
        let source = source(split.priced_source);
        let _ = write!(text, " priced ${}{source}", split.priced_cost_usd);
    }
    if split.unpriced_turns > 0 {
        let _ = write!(
            text,
            " unpriced {}:{}/{}",
            split.unpriced_turns, split.unpriced_input_tokens, split.unpriced_output_tokens
        );
        if split.unpriced_cached_input_tokens > 0 {
            let _ = write!(text, "({})", split.unpriced_cached_input_tokens);
        }
    }
    text
}

/// The root's spend, then each archetype's.
pub fn thread(thread: &ThreadSpend) -> String {
    let mut text = spend(&thread.root);
    for (agent, (sum, runs)) in &thread.subagents {
        let _ = write!(text, "; {agent} x{runs}: {}", spend(sum));
    }
    text
}
