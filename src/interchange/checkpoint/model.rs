//! The document of one run: its data, and how it is read and written.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The version of the format that can be resumed.
pub const SCHEMA_VERSION: i64 = 1;

/// The SHA-256 of the text that stands where a run was resumed.
const NOTICE_SHA256: &str = "b578c44959911856ab2c988bb32b00fa7c328ad17280b9bf472b4617338a0fb4";

/// One run of an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trajectory {
    /// Whether it had only tools that change nothing.
    pub read_only: bool,
    /// What the user asked for.
    pub task: String,
    /// The model.
    pub model: String,
    /// The whole history, as it is written; compactions never change it.
    pub messages: Option<Vec<Box<RawValue>>>,
    /// Turns that were completed.
    pub steps: i64,
    /// US dollars, over all runs that were resumed.
    pub cost: f64,
    /// Input tokens, with those read from the cache and written to it.
    pub input_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// Input tokens that came from the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_tokens: i64,
    /// Input tokens that were written to the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: i64,
    /// How it ended; empty while it runs.
    pub exit_status: String,
    /// The answer that it gave at the end.
    pub submission: String,
    /// What was done to the model's view.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compactions: Vec<Compaction>,
    /// Processes that still ran at the end.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub background_processes: String,
    /// 0 before runs could be resumed.
    #[serde(skip_serializing_if = "is_zero")]
    pub schema_version: i64,
    /// The working directory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// The system prompt as it was sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
    /// Whether the project's instructions were left out.
    pub skip_agents_md: bool,
    /// Names of the tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// What the tools were, in short.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool_signature: String,
    /// Whether tools from outside could be used.
    #[serde(skip_serializing_if = "is_false")]
    pub mcp_enabled: bool,
    /// Names of those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external_tools: Vec<String>,
    /// What they were, in short.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_tool_signature: String,
    /// The run that this one continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeInfo>,
    /// Members that this version does not know, as they are written.
    #[serde(skip)]
    pub other: BTreeMap<String, Box<RawValue>>,
}

/// What was done to the model's view.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// Turns that were completed then.
    pub step: i64,
    /// `proactive` or `overflow`.
    pub reason: String,
    /// `elide` or `summarize`.
    pub stage: String,
    /// The size of the view before.
    pub tokens_before: i64,
    /// The size of the view after.
    pub tokens_after: i64,
    /// Messages whose output was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elided: Vec<i64>,
    /// Messages that the summary stands for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub summarized: Vec<i64>,
    /// The summary.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// What it cost, in US dollars.
    #[serde(skip_serializing_if = "is_free")]
    pub usd: f64,
    /// What the model is sent: numbers of messages, -1 for the summary.
    pub view: Option<Vec<i64>>,
}

/// The run that was continued.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResumeInfo {
    /// The path of its checkpoint.
    pub source: String,
    /// How it ended.
    pub exit_status: String,
    /// Its turns.
    pub steps: i64,
    /// What it had answered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub submission: String,
    /// The message that says so.
    pub message: i64,
    /// The run that it continued itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Box<ResumeInfo>>,
}

/// What stands at one place of the model's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'t> {
    /// A message, by its number.
    Message {
        /// The number.
        index: usize,
        /// Whether its output was left out.
        elided: bool,
    },
    /// A summary.
    Summary(&'t str),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_free(usd: &f64) -> bool {
    *usd == 0.0
}

/// Whether a text is the notice that stands where a run was resumed.
#[must_use]
pub fn is_notice(text: &str) -> bool {
    let hash = Sha256::digest(text.as_bytes());
    let mut hex = String::new();
    for byte in hash {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
    }
    hex == NOTICE_SHA256
}

impl Trajectory {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] with the line and the column, and nothing of the content.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let damaged = |error: &serde_json::Error| Error::Corrupted {
            what: "checkpoint".to_owned(),
            at: format!("line {}, column {}", error.line(), error.column()),
        };
        let mut read: Self = serde_json::from_slice(bytes).map_err(|error| damaged(&error))?;
        let mut all: BTreeMap<String, Box<RawValue>> =
            serde_json::from_slice(bytes).map_err(|error| damaged(&error))?;
        // A document with everything in it names every key that is known.
        for key in KEYS {
            all.remove(*key);
        }
        read.other = all;
        Ok(read)
    }

    /// Reads the document at `path`. It is not validated.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], and what [`parse`](Self::parse) answers.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let bytes =
            fs::read(path.as_ref()).map_err(|error| failed("reading", path.as_ref(), error))?;
        Self::parse(&bytes)
    }

    /// The document as text: known members in their order, then the others.
    ///
    /// # Errors
    ///
    /// None that a document which was read can have.
    pub fn to_json(&self) -> Result<String> {
        let mut text = serde_json::to_string(self).map_err(Error::other)?;
        text.pop();
        for (key, value) in &self.other {
            text.push(',');
            text.push_str(&serde_json::to_string(key).map_err(Error::other)?);
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        Ok(text)
    }

    /// Writes the document to `path`, readable by its owner alone: a reader sees the document before or this one, never a
    /// part. What stands there is replaced, a link itself and not what it points to. Not synced.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; nothing changed then.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let temporary = self.temporary(path)?;
        let renamed = fs::rename(&temporary, path);
        if renamed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        renamed.map_err(|error| failed("writing", path, error))
    }

    /// Writes the document to `path` if nothing is there, not even a link that leads nowhere.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], also if something is there, or if the file system knows no hard links; nothing changed then.
    pub fn save_new(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let temporary = self.temporary(path)?;
        let linked = fs::hard_link(&temporary, path);
        let _ = fs::remove_file(&temporary);
        linked.map_err(|error| failed("writing", path, error))
    }

    /// The document in a file of its own beside `path`.
    fn temporary(&self, path: &Path) -> Result<PathBuf> {
        let text = self.to_json()?;
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}", uuid::Uuid::new_v4().simple()));
        let temporary = path.with_file_name(name);
        let written = private(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")
        });
        match written {
            Ok(()) => Ok(temporary),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(failed("writing", path, error))
            }
        }
    }

    /// The history.
    #[must_use]
    pub fn history(&self) -> &[Box<RawValue>] {
        self.messages.as_deref().unwrap_or_default()
    }

    /// What the model was sent when so many steps were completed: the view of the last compaction up to then, and the
    /// messages behind it. Without one it is all messages.
    #[must_use]
    pub fn view_at(&self, step: i64) -> Vec<Seen<'_>> {
        let last = self.compactions.iter().rposition(|it| it.step <= step);
        let until = last.map_or(0, |at| at + 1);
        let past = self.compactions.get(..until).unwrap_or_default();
        let elided: std::collections::HashSet<i64> =
            past.iter().flat_map(|it| &it.elided).copied().collect();
        let mut seen = Vec::new();
        let mut next = 0;
        if let Some(compaction) = past.last() {
            for index in compaction.view.iter().flatten() {
                match usize::try_from(*index) {
                    Ok(at) if at < self.history().len() => {
                        next = next.max(at + 1);
                        seen.push(Seen::Message {
                            index: at,
                            elided: elided.contains(index),
                        });
                    }
                    Ok(_) => {}
                    Err(_) => seen.push(Seen::Summary(&compaction.summary)),
                }
            }
        }
        seen.extend((next..self.history().len()).map(|index| Seen::Message {
            index,
            elided: false,
        }));
        seen
    }

    /// The runs that this one continued, the newest first.
    pub fn resume_chain(&self) -> impl Iterator<Item = &ResumeInfo> {
        std::iter::successors(self.resume.as_ref(), |info| info.previous.as_deref())
    }

    /// The document with which a run begins that continues this one. `source` is the path of this checkpoint; `notice` is
    /// the text that says so, which belongs to the program that resumes.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if this run cannot be resumed, with the rule that it breaks; [`Error::InvalidId`] for another
    /// text.
    pub fn resumed(&self, source: &str, notice: &str) -> Result<Self> {
        if !is_notice(notice) {
            return Err(Error::InvalidId {
                what: "continuation notice",
                reason: "it is not the text of the format".to_owned(),
            });
        }
        let checks = super::Checks {
            resumable: true,
            strict: false,
        };
        if let Some(broken) = self.validate(checks).first() {
            return Err(Error::Conflict {
                stem: source.to_owned(),
                reason: broken.to_string(),
            });
        }
        let mut next = self.clone();
        let message = serde_json::json!({"role": "user", "content": notice});
        let raw = serde_json::value::to_raw_value(&message).map_err(Error::other)?;
        next.resume = Some(ResumeInfo {
            source: source.to_owned(),
            exit_status: std::mem::take(&mut next.exit_status),
            steps: self.steps,
            submission: std::mem::take(&mut next.submission),
            message: i64::try_from(self.history().len()).unwrap_or(i64::MAX),
            previous: next.resume.take().map(Box::new),
        });
        next.background_processes.clear();
        next.messages.get_or_insert_default().push(raw);
        Ok(next)
    }
}

const KEYS: &[&str] = &[
    "read_only",
    "task",
    "model",
    "messages",
    "steps",
    "cost",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "exit_status",
    "submission",
    "compactions",
    "background_processes",
    "schema_version",
    "root",
    "system_prompt",
    "skip_agents_md",
    "tools",
    "tool_signature",
    "mcp_enabled",
    "external_tools",
    "external_tool_signature",
    "resume",
];

fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)
}

fn failed(doing: &str, path: &Path, error: io::Error) -> Error {
    Error::Io {
        what: format!("{doing} {}", path.display()),
        source: Arc::new(error),
    }
}
