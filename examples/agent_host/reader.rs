//! From files to conversations.
//!
//! Four shapes are understood: chat JSONL with a conversation a line (`{"messages": […]}`) or with a message a line
//! (`{"role": …}`, one conversation a file), one JSON document with a `messages` or `history` array, and one bare JSON
//! array of messages. A mistake is reported with file and line, never with what stands there: a transcript can hold
//! secrets.

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

/// What is wrong with a document of another kind.
const NEITHER: &str = "neither a message with a `role`, nor an array of messages, nor an object with a `messages` or \
                       `history` array";

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
    // Without the last line end, a text that stops within a string is known to stop there.
    let text = text.trim_ascii_end();
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
        Err(error) => {
            let last = text.lines().count();
            let what = broken(&error, true);
            // An error in column 0 is at the line end before it.
            let line = match error.column() {
                _ if error.is_eof() => last,
                0 => error.line().saturating_sub(1),
                _ => error.line(),
            };
            Err(format!("{file}, line {line}: {what}").into())
        }
    }
}

/// What to say of a text that is not JSON; a file's last line may be one that was not written to its end.
fn broken(error: &serde_json::Error, is_last: bool) -> String {
    match error.column() {
        _ if error.is_eof() && is_last => "the file ends in the middle of its JSON".to_owned(),
        _ if error.is_eof() => "not valid JSON (the line ends in the middle)".to_owned(),
        0 => "not valid JSON (at the end of the line)".to_owned(),
        column => format!("not valid JSON (column {column})"),
    }
}

/// Whether the first line that says anything is a whole JSON value.
fn is_lines(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| serde_json::from_str::<Value>(line).is_ok())
}

/// The conversations of a file with a document a line. The first line says whether each is a conversation, or all of
/// them are the messages of one.
fn parse_lines(file: &str, name: &str, text: &str) -> Result<Vec<Conversation>> {
    let last = text.lines().count();
    let documents = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(line, number)| match serde_json::from_str(line) {
            Ok(document) => Ok((number, document)),
            Err(error) => {
                let what = broken(&error, number == last);
                Err(format!("{file}, line {number}: {what}"))
            }
        })
        .collect::<std::result::Result<Vec<(usize, Value)>, String>>()?;
    let messages = documents
        .first()
        .is_some_and(|(_, document)| is_message(document));
    let other = documents
        .iter()
        .find(|(_, document)| is_message(document) != messages);
    if let Some((number, _)) = other {
        let what = if messages {
            "not a message with a `role`, as the lines before it are"
        } else {
            "a message, where the lines before it are none"
        };
        return Err(format!("{file}, line {number}: {what}").into());
    }
    if !messages {
        let conversations = documents.into_iter().map(|(number, document)| {
            conversation(document, &format!("{name} #{number}"))
                .map_err(|mistake| mistake.at(file, number).into())
        });
        return conversations.collect();
    }
    let (numbers, rows): (Vec<usize>, Vec<Value>) = documents.into_iter().unzip();
    let only = conversation(Value::Array(rows), name).map_err(|mistake| {
        let line = mistake.message.and_then(|index| numbers.get(index));
        mistake.at(file, line.copied().unwrap_or(1))
    })?;
    Ok(vec![only])
}

/// Whether a document is a message by itself, not something that holds messages.
fn is_message(document: &Value) -> bool {
    document.as_object().is_some_and(|fields| {
        fields.contains_key("role") && !MESSAGE_KEYS.iter().any(|key| fields.contains_key(*key))
    })
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
        message if is_message(&message) => (vec![message], None),
        Value::Object(mut head) => {
            let key = MESSAGE_KEYS.into_iter().find(|key| head.contains_key(*key));
            match key.and_then(|key| head.remove(key)) {
                Some(Value::Array(rows)) => (rows, Some(head)),
                Some(_) => return Err(Mistake::new("its messages are not an array")),
                None => return Err(Mistake::new(NEITHER)),
            }
        }
        _ => return Err(Mistake::new(NEITHER)),
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
