//! From files to conversations.
//!
//! Three shapes are understood: chat JSONL (one `{"messages": […]}` a line), one JSON document with a `messages` or
//! `history` array, and one bare JSON array of messages. A mistake is reported with file and line, never with what
//! stands there: a transcript can hold secrets.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use serde_json::Value;
use transcript_redb::TranscriptMessage;

use crate::Result;
use crate::message::message_of;

/// Files that come with the example, invented for it.
const SAMPLE: [(&str, &str); 3] = [
    ("agents.jsonl", include_str!("../data/agents.jsonl")),
    ("incident.json", include_str!("../data/incident.json")),
    ("screenshots.json", include_str!("../data/screenshots.json")),
];

/// The keys under which a document may keep its messages, the first one present wins.
const MESSAGE_KEYS: [&str; 2] = ["messages", "history"];

/// One conversation to play, as it was found.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// What the file calls it, else the file's name and the place in it.
    pub title: String,
    /// The agent that holds the conversation, when the file names one.
    pub agent: Option<String>,
    /// Provider and model, when the file names both.
    pub model: Option<(String, String)>,
    /// The messages, in order; never empty.
    pub messages: Vec<TranscriptMessage>,
}

/// All conversations of `files`, or of the bundled sample when there are none, with the number of files read.
pub fn read(files: &[impl AsRef<Path>]) -> Result<(Vec<Conversation>, usize)> {
    let mut conversations = Vec::new();
    if files.is_empty() {
        for (name, text) in SAMPLE {
            conversations.extend(parse(name, name, text)?);
        }
        return Ok((conversations, SAMPLE.len()));
    }
    for path in files {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let bytes = fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let lines = error.as_bytes().iter().take(valid);
            let line = 1 + lines.filter(|byte| **byte == b'\n').count();
            format!("{shown}, line {line}: not UTF-8 text")
        })?;
        let name = path
            .file_name()
            .map_or_else(|| shown.clone(), |name| name.to_string_lossy().into_owned());
        conversations.extend(parse(&shown, &name, &text)?);
    }
    Ok((conversations, files.len()))
}

/// The conversations of one file: `file` stands in errors, `name` in titles.
fn parse(file: &str, name: &str, text: &str) -> Result<Vec<Conversation>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(format!("{file}: holds no conversation").into());
    }
    match serde_json::from_str::<Value>(text) {
        Ok(document) => Ok(vec![conversation(document, name).map_err(|mistake| {
            let first = 1 + text
                .lines()
                .take_while(|line| line.trim().is_empty())
                .count();
            let line = mistake
                .message
                .and_then(|index| line_of_message(text, index))
                .unwrap_or(first);
            mistake.at(file, line)
        })?]),
        // Only when the file as a whole is no document is it a document a line.
        Err(_) if is_lines(text) => parse_lines(file, name, text),
        Err(error) => Err(format!(
            "{file}, line {}: not valid JSON (column {})",
            error.line(),
            error.column()
        )
        .into()),
    }
}

/// Whether the first line that says anything is a whole JSON value.
fn is_lines(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| serde_json::from_str::<Value>(line).is_ok())
}

fn parse_lines(file: &str, name: &str, text: &str) -> Result<Vec<Conversation>> {
    text.lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(line, number)| {
            let document = serde_json::from_str(line).map_err(|error| {
                let column = error.column();
                format!("{file}, line {number}: not valid JSON (column {column})")
            })?;
            conversation(document, &format!("{name} #{number}"))
                .map_err(|mistake| mistake.at(file, number).into())
        })
        .collect()
}

/// What is wrong with a document, and with which of its messages.
struct Mistake {
    message: Option<usize>,
    what: String,
}

impl Mistake {
    fn new(what: impl Display) -> Self {
        let what = what.to_string();
        Mistake {
            message: None,
            what,
        }
    }

    fn at(&self, file: &str, line: usize) -> String {
        let what = &self.what;
        match self.message {
            Some(index) => format!("{file}, line {line}: message {} {what}", index + 1),
            None => format!("{file}, line {line}: {what}"),
        }
    }
}

fn conversation(document: Value, name: &str) -> std::result::Result<Conversation, Mistake> {
    let (rows, head) = match document {
        Value::Array(rows) => (rows, None),
        Value::Object(mut head) => {
            let key = MESSAGE_KEYS.into_iter().find(|key| head.contains_key(*key));
            match key.and_then(|key| head.remove(key)) {
                Some(Value::Array(rows)) => (rows, Some(head)),
                Some(_) => return Err(Mistake::new("its messages are not an array")),
                None => return Err(Mistake::new("has no `messages` or `history` array")),
            }
        }
        _ => return Err(Mistake::new("neither an object nor an array")),
    };
    if rows.is_empty() {
        return Err(Mistake::new("the conversation is empty"));
    }
    let named = |key: &str| {
        let value = head.as_ref()?.get(key)?.as_str()?;
        (!value.trim().is_empty()).then(|| value.to_owned())
    };
    let messages = rows.into_iter().enumerate().map(|(index, row)| {
        message_of(row).map_err(|what| Mistake {
            message: Some(index),
            what: what.to_owned(),
        })
    });
    Ok(Conversation {
        messages: messages.collect::<std::result::Result<_, _>>()?,
        title: named("title").unwrap_or_else(|| name.to_owned()),
        agent: named("agent"),
        model: named("provider").zip(named("model")),
    })
}

/// The line on which message `index` of a document begins. The text is known to be valid JSON, so that counting
/// brackets outside strings is enough.
fn line_of_message(text: &str, index: usize) -> Option<usize> {
    let text_of_key = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let bare = text.trim_start().starts_with('[');
    let (mut depth, mut line, mut element) = (0, 1, 0);
    // Within the array of messages, and whether the next value begins an element of it.
    let (mut inside, mut fresh) = (false, false);
    let (mut key, mut string, mut escaped) = ("", None, false);
    for (at, byte) in text.bytes().enumerate() {
        if let Some(from) = string {
            if escaped {
                escaped = false;
            } else if byte == b'\\' {
                escaped = true;
            } else if byte == b'"' {
                string = None;
                if depth == 1 && !bare {
                    key = text_of_key(from, at);
                }
            }
            continue;
        }
        if fresh && !byte.is_ascii_whitespace() && byte != b']' {
            if element == index {
                return Some(line);
            }
            fresh = false;
        }
        match byte {
            b'\n' => line += 1,
            b'"' => string = Some(at + 1),
            b'[' | b'{' => {
                let starts = if bare {
                    depth == 0
                } else {
                    depth == 1 && MESSAGE_KEYS.contains(&key)
                };
                depth += 1;
                if starts && byte == b'[' {
                    (inside, fresh, element) = (true, true, 0);
                }
            }
            b']' | b'}' => {
                depth -= 1;
                inside &= depth > usize::from(!bare);
            }
            b',' if inside && depth == 1 + usize::from(!bare) => {
                element += 1;
                fresh = true;
            }
            _ => {}
        }
    }
    None
}
