//! Chat JSONL: one conversation a line, as data sets, fine-tuning files and evaluations have them.
//!
//! Read are `messages`, the `conversations` of `ShareGPT`, the `body` of batch files, and logs with one message a line.
//! There are no ids: a conversation is named by what the source says up to the end of its line.

mod write;

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::blocks::take_text;
use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::fact::{RowFact, SessionFact, SessionNo};
use super::openai;
use super::source::{Record, Source};
use super::write::Writer;
use crate::{Result, SessionRef, TranscriptMessage, TranscriptMeta};
use write::ChatWriter;

/// The codec.
#[derive(Debug, Clone, Copy)]
pub struct Chat;

const NAME: &str = "chat";

impl Codec for Chat {
    fn writer(&self) -> Option<Box<dyn Writer>> {
        Some(Box::new(ChatWriter::default()))
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        let first = probe.records().first()?;
        let list = |key: &str| first.get(key).is_some_and(Value::is_array);
        let body = |key: &str| {
            first
                .get("body")
                .is_some_and(|body| body.get(key).is_some())
        };
        if list("messages") || list("conversations") || body("messages") {
            // A document of one run has messages too, and says how that ended.
            let run = first.contains_key("exit_status") || first.contains_key("schema_version");
            return (!run).then_some(Certainty::Likely);
        }
        let message = first.get("role").is_some_and(Value::is_string)
            && first.contains_key("content")
            && !first.contains_key("_meta");
        message.then_some(Certainty::Maybe)
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        let mut log: Option<SessionNo> = None;
        while let Some(mut record) = source.next(owns)? {
            let Some(messages) = take_messages(&mut record.value) else {
                if record.value.get("role").is_some_and(Value::is_string) {
                    let session = match log {
                        Some(session) => session,
                        None => *log.insert(begin(source, &record, emit)?),
                    };
                    let message = openai::row_of(std::mem::take(&mut record.value));
                    row(source, &record, 0, session, message, emit)?;
                } else {
                    source.misfit(&record);
                }
                continue;
            };
            let session = begin(source, &record, emit)?;
            let tools = ["tools", "functions"]
                .iter()
                .find_map(|key| record.value.remove(*key).filter(|tools| !tools.is_null()));
            if let Some(tools) = tools {
                let key = source.key(&record, None);
                emit.tools(session, tools, record.place, key)?;
            }
            for (part, message) in (0..).zip(messages) {
                row(source, &record, part, session, message, emit)?;
            }
        }
        Ok(())
    }
}

fn owns(value: &Map<String, Value>) -> bool {
    ["messages", "conversations", "role", "body"]
        .iter()
        .any(|key| value.contains_key(*key))
}

/// Begins a session that is named by the source up to the end of this record.
fn begin(source: &Source<'_>, record: &Record, emit: &mut Emit<'_>) -> Result<SessionNo> {
    let mut name = String::new();
    for byte in source.prefix_hash(record).iter().take(16) {
        let _ = write!(name, "{byte:02x}");
    }
    let _ = write!(name, "#{}", record.place.line);
    // The format has no times, and a session that is imported twice has to look the same.
    let mut meta = TranscriptMeta::new(NAME)
        .with_thread_id(&name)
        .with_dispatcher(NAME)
        .with_created("")
        .with_updated("");
    if let Some(model) = record.text("model") {
        meta = meta.with_model(model);
    }
    let mut session = SessionFact::new(SessionRef::root(name), meta);
    let attributes = record.value.iter().filter(|(key, value)| {
        !matches!(
            key.as_str(),
            "messages" | "tools" | "functions" | "role" | "content"
        ) && !value.is_null()
    });
    session.attributes = attributes
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    emit.session(session)
}

fn row(
    source: &Source<'_>,
    record: &Record,
    part: u32,
    session: SessionNo,
    message: TranscriptMessage,
    emit: &mut Emit<'_>,
) -> Result<()> {
    emit.row(RowFact {
        session,
        message,
        uuid: None,
        ts: String::new(),
        iteration: None,
        place: record.place.part(part),
        key: source.key(record, None),
        revises: None,
        cache_write: 0,
        lossy: record.lossy,
    })?;
    Ok(())
}

/// The messages of a conversation, in whatever shape it has.
fn take_messages(value: &mut Map<String, Value>) -> Option<Vec<TranscriptMessage>> {
    if let Some(Value::Object(body)) = value.get_mut("body") {
        let messages = body.remove("messages")?;
        return Some(openai_messages(messages));
    }
    if let Some(Value::Array(turns)) = value.get("conversations")
        && turns.iter().all(Value::is_object)
    {
        let turns = value.remove("conversations")?;
        return Some(share_gpt(turns));
    }
    if !value.get("messages")?.is_array() {
        return None;
    }
    value.remove("messages").map(openai_messages)
}

fn openai_messages(messages: Value) -> Vec<TranscriptMessage> {
    objects(messages).map(openai::row_of).collect()
}

fn share_gpt(turns: Value) -> Vec<TranscriptMessage> {
    objects(turns)
        .map(|mut turn| {
            let from = take_text(&mut turn, "from");
            let role = match from.as_str() {
                "human" => "user",
                "gpt" => "assistant",
                other => other,
            };
            TranscriptMessage::new(role, take_text(&mut turn, "value"))
        })
        .collect()
}

/// The objects of a list; what else stands in it is in the source.
fn objects(list: Value) -> impl Iterator<Item = Map<String, Value>> {
    let items = match list {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    items.into_iter().filter_map(|item| match item {
        Value::Object(object) => Some(object),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{report, rows, sessions};
    use super::*;

    const FILE: &str = concat!(
        r#"{"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"}]}"#,
        "\n",
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"lookup","arguments":"{\"q\":\"x\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"found"},{"role":"assistant","content":"It is x."}],"tools":[{"type":"function","function":{"name":"lookup"}}],"parallel_tool_calls":false}"#,
        "\n"
    );

    #[test]
    fn every_line_is_a_session() {
        let report = report(&Chat, "x.jsonl", FILE.as_bytes());
        assert_eq!(
            (report.sessions, report.messages, report.records),
            (2, 7, 2)
        );
        let rows = rows(&Chat, "x.jsonl", FILE.as_bytes());
        assert_eq!(rows[4].message.tool_calls[0].name, "lookup");
        assert_eq!(rows[5].message.tool_call_id.as_deref(), Some("call_1"));
    }

    #[test]
    fn a_session_keeps_its_name_when_the_file_grows() {
        let before = sessions(&Chat, "x.jsonl", FILE.as_bytes());
        let grown = format!("{FILE}{}", FILE.lines().next().unwrap());
        let after = sessions(&Chat, "x.jsonl", grown.as_bytes());
        assert_eq!(before[..], after[..2]);
        assert_ne!(after[2], after[0], "equal lines are two sessions");
    }

    #[test]
    fn other_shapes_of_conversations_are_read() {
        let file = concat!(
            r#"{"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"hello"}]}"#,
            "\n",
            r#"{"custom_id":"a","body":{"model":"m","messages":[{"role":"user","content":"x"}]}}"#,
            "\n",
            r#"{"role":"user","content":"one"}"#,
            "\n",
            r#"{"role":"assistant","content":"two"}"#,
            "\n{\"neither\":1}\n"
        );
        let report = report(&Chat, "x.jsonl", file.as_bytes());
        assert_eq!((report.sessions, report.messages), (3, 5));
        assert_eq!(report.quarantined.len(), 1);
        assert_eq!(
            rows(&Chat, "x.jsonl", file.as_bytes())[1].message.role,
            "assistant"
        );
    }
}
