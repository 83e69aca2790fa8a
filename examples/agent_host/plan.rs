//! What every session will do, worked out before anything is written.
//!
//! The plan depends on the input, the number of sessions and the seed alone. A host that was killed makes the same
//! plan again, finds in the store how far it got, and goes on from there.

use serde_json::{Value, json};
use transcript_redb::{SessionRef, TranscriptMessage, TranscriptPartial};

use crate::price;
use crate::reader::Conversation;

/// One session: a conversation that is played in a thread of its own.
#[derive(Debug)]
pub struct Session {
    pub index: usize,
    pub thread_id: String,
    pub agent: String,
    pub provider: String,
    pub model: String,
    pub title: String,
    /// What the agent may call, as the host would declare it.
    pub tools: Value,
    pub turns: Vec<Turn>,
}

impl Session {
    /// The session's identity; the store says which generation is its head.
    pub fn reference(&self) -> SessionRef {
        SessionRef::scoped(self.thread_id.clone(), self.agent.clone())
    }
}

/// One turn: what it adds and what happens around it.
#[derive(Debug)]
pub struct Turn {
    /// Its request id, unique in the whole run.
    pub request: String,
    /// The rows it adds to the live context.
    pub rows: Vec<TranscriptMessage>,
    pub shape: Shape,
    /// Text that was streamed before the user pressed stop; persisted with the turn.
    pub cut_off: Option<TranscriptPartial>,
    /// A first attempt that the user interrupted; nothing of it but this text remains.
    pub attempt: Option<TranscriptPartial>,
    /// Work handed to sub-agents before the turn ends.
    pub tasks: Vec<Task>,
    /// A report that arrives after the turn.
    pub report: Option<Report>,
}

/// What a turn does to the live context before it adds its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Extend,
    /// Drop what is old, within the generation.
    Compact,
    /// Drop what is old and go on in the next generation.
    Succeed,
}

/// A piece of work for a sub-agent.
#[derive(Debug)]
pub struct Task {
    pub key: String,
    pub agent: String,
    pub rows: Vec<TranscriptMessage>,
}

/// A report of something that runs beside the conversation.
#[derive(Debug)]
pub struct Report {
    pub key: String,
    pub text: String,
    pub provenance: Value,
}

/// Deals the conversations to the sessions in turn, so that each is played at least once.
pub fn plan(conversations: &[Conversation], at_least: usize, seed: u64) -> Vec<Session> {
    let count = at_least.max(conversations.len());
    let dealt = conversations.iter().enumerate().cycle().take(count);
    dealt
        .enumerate()
        .map(|(index, (number, conversation))| {
            let (provider, model) = conversation
                .model
                .clone()
                .unwrap_or_else(|| price::dealt(number));
            Session {
                index,
                thread_id: format!("thread-{index:03}"),
                agent: conversation
                    .agent
                    .clone()
                    .unwrap_or_else(|| "assistant".to_owned()),
                provider,
                model,
                title: conversation.title.clone(),
                tools: tools_of(&conversation.messages),
                turns: turns(index, &conversation.messages, offset(seed, index)),
            }
        })
        .collect()
}

/// Where session `index` stands in the cycle of events, so that not all sessions do the same at the same time.
fn offset(seed: u64, index: usize) -> usize {
    let index = u64::try_from(index).unwrap_or_default();
    // One step of SplitMix64.
    let mut mixed = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % 1260).unwrap_or_default()
}

/// Where a run may be cut: a share of `total` between two fifths and three fifths, at least one.
pub fn kill_after(seed: u64, total: usize) -> usize {
    let share = 40 + offset(seed, usize::MAX) % 21;
    (total * share / 100).max(1)
}

fn tools_of(messages: &[TranscriptMessage]) -> Value {
    let calls = messages.iter().flat_map(|row| &row.tool_calls);
    let names: std::collections::BTreeSet<&str> = calls.map(|call| call.name.as_str()).collect();
    let declared = names
        .iter()
        .map(|name| json!({"type": "function", "name": name}));
    Value::Array(declared.collect())
}

fn turns(session: usize, messages: &[TranscriptMessage], offset: usize) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for (exchange, mut rows) in exchanges(messages).into_iter().enumerate() {
        let beat = offset + exchange;
        let cut_off = (beat % 7 == 3).then(|| cut_off(&rows)).flatten();
        let again = cut_off.is_some().then(|| rows.pop()).flatten();
        let request = format!("s{session:03}-t{:03}", turns.len() + 1);
        turns.push(Turn {
            shape: match beat % 6 {
                1 | 4 if exchange >= 2 => Shape::Compact,
                3 if exchange >= 2 => Shape::Succeed,
                _ => Shape::Extend,
            },
            attempt: (beat % 5 == 2 && exchange >= 1).then(|| {
                TranscriptPartial::new("Let me first have a look at")
                    .with_reasoning_content("The user stopped this attempt.")
            }),
            tasks: tasks(&request, &rows, beat),
            report: (beat % 4 == 1).then(|| Report {
                key: format!("watcher/{request}"),
                text: format!("Watcher: nothing new since {request}."),
                provenance: json!({"job": "watcher", "after": request}),
            }),
            cut_off,
            rows,
            request,
        });
        if let Some(again) = again {
            // The answer that was cut off is given again, in a turn of its own.
            turns.push(Turn {
                request: format!("s{session:03}-t{:03}", turns.len() + 1),
                rows: vec![again],
                shape: Shape::Extend,
                cut_off: None,
                attempt: None,
                tasks: Vec::new(),
                report: None,
            });
        }
    }
    turns
}

/// Cuts a conversation where the user speaks again.
fn exchanges(messages: &[TranscriptMessage]) -> Vec<Vec<TranscriptMessage>> {
    let mut exchanges = Vec::new();
    let mut current: Vec<TranscriptMessage> = Vec::new();
    for row in messages {
        let answered = current
            .iter()
            .any(|row| row.role != "user" && row.role != "system");
        if row.role == "user" && answered {
            exchanges.push(std::mem::take(&mut current));
        }
        current.push(row.clone());
    }
    exchanges.push(current);
    exchanges
}

/// The first half of a closing answer, if there is one to be cut off.
fn cut_off(rows: &[TranscriptMessage]) -> Option<TranscriptPartial> {
    let [_, .., last] = rows else { return None };
    let length = last.content.chars().count();
    let closing = last.role == "assistant" && last.tool_calls.is_empty() && length >= 2;
    closing
        .then(|| TranscriptPartial::new(last.content.chars().take(length / 2).collect::<String>()))
}

/// The work that a turn hands over: its `delegate…` calls with their results, else now and then a check.
fn tasks(request: &str, rows: &[TranscriptMessage], beat: usize) -> Vec<Task> {
    let task = |agent: &str, number: usize, brief: &str, answer: &str| Task {
        key: format!("{request}-{agent}-{number}"),
        agent: agent.to_owned(),
        rows: vec![
            TranscriptMessage::user(brief),
            TranscriptMessage::assistant(answer),
        ],
    };
    let calls = rows.iter().flat_map(|row| &row.tool_calls);
    let mut tasks = Vec::new();
    for call in calls {
        let Some(agent) = call.name.strip_prefix("delegate_") else {
            continue;
        };
        let agent = agent.strip_prefix("to_").unwrap_or(agent);
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let brief = arguments.get("task").and_then(Value::as_str);
        let answer = rows
            .iter()
            .find(|row| row.tool_call_id.as_ref() == Some(&call.id));
        let answer = answer.map_or("No result.", |row| row.content.as_str());
        tasks.push(task(
            agent,
            tasks.len() + 1,
            brief.unwrap_or(&call.arguments),
            answer,
        ));
    }
    if tasks.is_empty() && beat % 9 == 4 {
        let asked = rows.iter().find(|row| row.role == "user");
        let asked = asked.map_or("(nothing)", |row| row.content.as_str());
        let brief = format!("Does the work so far answer this?\n\n{asked}");
        tasks.push(task("checker", 1, &brief, "It does, as far as it goes."));
    }
    tasks
}
