//! Whether a run can go on from its document.

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value};

use super::model::{SCHEMA_VERSION, Trajectory, is_notice};
use crate::TranscriptMessage;
use crate::interchange::blocks::rows_of;
use crate::interchange::openai::row_of;

/// What is checked beside the calls and their results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checks {
    /// Whether the run can be resumed: version, resume points, compactions, counters.
    pub resumable: bool,
    /// What some programs accept, too: that the last message is no plain answer, and that results come in the order of
    /// their calls.
    pub strict: bool,
}

/// A rule of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// V1: every call has a result before anything else follows.
    Unanswered,
    /// V2: every result answers a call of the turn before it.
    Orphan,
    /// V3: ids pair one to one within a turn, and are not empty.
    Pairing,
    /// V5: the history ends where the model can be asked.
    OpenEnd,
    /// V6: it does not end with a plain answer.
    PlainEnd,
    /// V9: results come in the order of their calls.
    Order,
    /// V10: the version is the one that can be resumed.
    Version,
    /// V11: every resume point is a notice, and they ascend.
    ResumePoint,
    /// V12: a compaction names messages that are there, and a summary only if it has one.
    Compaction,
    /// V13: no counter is negative.
    Counter,
}

/// A rule that a document breaks, and where; nothing of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// The message or the compaction, where the rule is of one.
    pub index: Option<usize>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.rule {
            Rule::Unanswered => "V1: a call has no result",
            Rule::Orphan => "V2: a result answers no call of the turn before it",
            Rule::Pairing => "V3: ids of calls and results do not pair",
            Rule::OpenEnd => "V5: the history ends with calls that have no result",
            Rule::PlainEnd => "V6: the history ends with an answer",
            Rule::Order => "V9: results are not in the order of their calls",
            Rule::Version => "V10: the version cannot be resumed",
            Rule::ResumePoint => "V11: a resume point is no continuation notice",
            Rule::Compaction => "V12: a compaction names what is not there",
            Rule::Counter => "V13: a counter is negative",
        };
        f.write_str(text)?;
        match self.index {
            Some(index) => write!(f, " (at {index})"),
            None => Ok(()),
        }
    }
}

/// The rows of a message, whichever way it is written.
pub(super) fn rows(message: Map<String, Value>) -> Vec<TranscriptMessage> {
    let blocks = message.get("content").and_then(Value::as_array);
    let typed = blocks.is_some_and(|blocks| {
        blocks.iter().any(|block| {
            let kind = block.get("type").and_then(Value::as_str);
            matches!(kind, Some("tool_use" | "tool_result" | "thinking"))
        })
    });
    if !typed {
        return vec![row_of(message)];
    }
    let mut message = message;
    let role = crate::interchange::blocks::take_text(&mut message, "role");
    rows_of(&role, message.remove("content").unwrap_or(Value::Null))
}

/// The calls of a turn that wait for results.
#[derive(Default)]
struct Turn {
    at: usize,
    /// Each call, and whether it has its result.
    calls: Vec<(String, bool)>,
    by_id: HashMap<String, usize>,
    /// The call that was answered last.
    last: Option<usize>,
}

impl Turn {
    fn is_open(&self) -> bool {
        self.calls.iter().any(|(_, answered)| !answered)
    }
}

impl Trajectory {
    /// The rules that the document breaks, in the order of the history. Nothing is repaired.
    #[must_use]
    pub fn validate(&self, checks: Checks) -> Vec<Broken> {
        self.validate_with(checks, is_notice)
    }

    pub(super) fn validate_with(&self, checks: Checks, notice: fn(&str) -> bool) -> Vec<Broken> {
        let mut broken = Vec::new();
        self.turns(checks, &mut broken);
        if checks.resumable {
            if self.schema_version != SCHEMA_VERSION {
                broken.push(Broken {
                    rule: Rule::Version,
                    index: None,
                });
            }
            self.resume_points(notice, &mut broken);
            self.views(&mut broken);
            let counters = [
                self.steps,
                self.input_tokens,
                self.output_tokens,
                self.cache_read_tokens,
                self.cache_write_tokens,
            ];
            if counters.iter().any(|counter| *counter < 0) || self.cost < 0.0 {
                broken.push(Broken {
                    rule: Rule::Counter,
                    index: None,
                });
            }
        }
        broken
    }

    fn turns(&self, checks: Checks, broken: &mut Vec<Broken>) {
        let mut turn = Turn::default();
        let mut plain = false;
        for (at, message) in self.history().iter().enumerate() {
            let mut note = |rule, index| {
                broken.push(Broken {
                    rule,
                    index: Some(index),
                });
            };
            let message: Map<String, Value> =
                serde_json::from_str(message.get()).unwrap_or_default();
            for row in rows(message) {
                if row.role == "tool" {
                    plain = false;
                    let id = row.tool_call_id.unwrap_or_default();
                    let Some(call) = turn.by_id.get(&id).copied() else {
                        let rule = if id.is_empty() {
                            Rule::Pairing
                        } else {
                            Rule::Orphan
                        };
                        note(rule, at);
                        continue;
                    };
                    if checks.strict && turn.last.is_some_and(|last| call < last) {
                        note(Rule::Order, at);
                    }
                    turn.last = Some(call);
                    if let Some((_, answered)) = turn.calls.get_mut(call)
                        && std::mem::replace(answered, true)
                    {
                        note(Rule::Pairing, at);
                    }
                    continue;
                }
                if turn.is_open() {
                    note(Rule::Unanswered, turn.at);
                }
                turn = Turn {
                    at,
                    ..Turn::default()
                };
                plain = row.role == "assistant" && row.tool_calls.is_empty();
                for call in row.tool_calls {
                    let number = turn.calls.len();
                    let twice = turn.by_id.insert(call.id.clone(), number).is_some();
                    if call.id.is_empty() || twice {
                        note(Rule::Pairing, at);
                    }
                    turn.calls.push((call.id, false));
                }
            }
        }
        if turn.is_open() {
            broken.push(Broken {
                rule: Rule::OpenEnd,
                index: Some(turn.at),
            });
        }
        if checks.strict && plain {
            broken.push(Broken {
                rule: Rule::PlainEnd,
                index: self.history().len().checked_sub(1),
            });
        }
    }

    fn resume_points(&self, notice: fn(&str) -> bool, broken: &mut Vec<Broken>) {
        let mut above = i64::MAX;
        for info in self.resume_chain() {
            let at = usize::try_from(info.message).ok();
            let message = at.and_then(|at| self.history().get(at));
            let message = message
                .and_then(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()).ok())
                .and_then(|message| rows(message).pop());
            let right = message.is_some_and(|row| row.role == "user" && notice(&row.content));
            if !right || info.message >= above {
                broken.push(Broken {
                    rule: Rule::ResumePoint,
                    index: at,
                });
            }
            above = info.message;
        }
    }

    fn views(&self, broken: &mut Vec<Broken>) {
        let there = |index: i64| usize::try_from(index).is_ok_and(|at| at < self.history().len());
        for (at, compaction) in self.compactions.iter().enumerate() {
            let view = compaction.view.as_deref().unwrap_or_default();
            let summary = !compaction.summary.is_empty();
            let right = !view.is_empty()
                && view.iter().all(|it| there(*it) || *it == -1 && summary)
                && compaction.elided.iter().all(|it| there(*it))
                && compaction.summarized.iter().all(|it| there(*it));
            if !right {
                broken.push(Broken {
                    rule: Rule::Compaction,
                    index: Some(at),
                });
            }
        }
    }
}
