//! Markdown for people to read: everything that was ever stored, in the order of the log. It is only written.

use std::io::Write;

use super::fact::{ContextReason, Fact, Kept, RowFact};
use super::target::writing;
use super::write::{Target, Writer};
use crate::{Result, TranscriptMessage, TranscriptPart};

/// Writes one document a session, or one of all where the target is one file.
#[derive(Debug, Default)]
pub struct Markdown {
    name: String,
    text: String,
}

impl Markdown {
    fn end_session(&mut self, target: &mut dyn Target) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(());
        }
        let out: &mut dyn Write = target.file(&format!("{}.md", self.name))?;
        out.write_all(text.as_bytes()).map_err(writing)
    }

    fn paragraph(&mut self, text: &str) {
        let text = text.trim_end();
        if !text.is_empty() {
            self.text.push_str(text);
            self.text.push_str("\n\n");
        }
    }

    fn row(&mut self, row: &RowFact) {
        let message = &row.message;
        let mut heading = format!("## {}", title_of(&message.role));
        if message.interrupted {
            heading.push_str(", interrupted");
        }
        if !row.ts.is_empty() {
            heading = format!("{heading} ({})", row.ts);
        }
        self.paragraph(&heading);
        let noted = message.extra_metadata.as_ref();
        let reasoning = noted.and_then(|noted| noted.get("reasoning_content")?.as_str());
        if let Some(reasoning) = reasoning {
            self.quote(reasoning);
        }
        self.content(message);
        for call in &message.tool_calls {
            self.paragraph(&format!("Call of `{}`:", call.name.replace('`', "'")));
            self.fenced(&call.arguments);
        }
    }

    fn content(&mut self, message: &TranscriptMessage) {
        let Some(parts) = &message.parts else {
            return match message.role.as_str() {
                "tool" => self.fenced(&message.content),
                _ => self.paragraph(&message.content),
            };
        };
        for part in parts {
            match part {
                TranscriptPart::Text { text } => self.paragraph(text),
                TranscriptPart::Image { .. } => self.paragraph("*An image.*"),
                TranscriptPart::Audio { .. } => self.paragraph("*A sound.*"),
                TranscriptPart::Video { .. } => self.paragraph("*A video.*"),
                TranscriptPart::Document { .. } => self.paragraph("*A document.*"),
            }
        }
    }

    fn quote(&mut self, text: &str) {
        let quoted: Vec<_> = text.lines().map(|line| format!("> {line}")).collect();
        self.paragraph(&quoted.join("\n"));
    }

    /// Text as it is, in a fence that nothing in it ends.
    fn fenced(&mut self, text: &str) {
        let mut longest = 0;
        let mut run = 0;
        for c in text.chars() {
            run = if c == '`' { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        let fence = "`".repeat(longest.max(2) + 1);
        self.paragraph(&format!(
            "{fence}\n{}\n{fence}",
            text.trim_end_matches('\n')
        ));
    }
}

fn title_of(role: &str) -> String {
    let mut chars = role.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

impl Writer for Markdown {
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()> {
        match fact {
            Fact::Session(_, session) => {
                self.end_session(target)?;
                self.name = session.session.session_id();
                let title = session.title.unwrap_or_else(|| self.name.clone());
                let title: Vec<_> = title.split_whitespace().collect();
                self.paragraph(&format!("# {}", title.join(" ")));
                let meta = session.meta;
                let mut about = format!("Session `{}`, agent {}", self.name, meta.agent_name);
                if let Some(thread) = meta.thread_id {
                    about = format!("{about}, thread {thread}");
                }
                if let Some(model) = meta.model {
                    about = format!("{about}, model {model}");
                }
                self.paragraph(&format!("{about}."));
            }
            Fact::Row(_, row) => self.row(&row),
            Fact::Context(context) => {
                self.paragraph(match context.reason {
                    ContextReason::Compaction => "---\n\n*The context was compacted here.*",
                    ContextReason::Rewind => {
                        "---\n\n*The conversation went on from an earlier point.*"
                    }
                    ContextReason::Clear => "---\n\n*The context was cleared here.*",
                });
                for kept in &context.rows {
                    if let Kept::New(_, row) = kept {
                        self.row(row);
                    }
                }
            }
            Fact::Partial { partial, .. } => {
                self.paragraph("## Assistant, interrupted");
                self.paragraph(&partial.content);
            }
            _ => {}
        }
        Ok(())
    }

    fn shares_files(&self) -> bool {
        true
    }

    fn finish(&mut self, target: &mut dyn Target) -> Result<()> {
        self.end_session(target)
    }
}
