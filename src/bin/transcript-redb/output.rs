//! Standard output: its width, its colours, its time zone.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal as _, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::text::{safe, safe_line};

/// How wide prose may be; longer lines are hard to read.
const PROSE_COLUMNS: usize = 100;
/// How wide a terminal is taken to be that does not say.
const UNKNOWN_COLUMNS: usize = 80;

/// Headings of tables, names of roles.
pub const BOLD: Style = Style::new().bold();
/// What matters less.
pub const DIM: Style = Style::new().dimmed();
/// What the user said.
pub const USER: Style = AnsiColor::Green.on_default().bold();
/// What the model said.
pub const ASSISTANT: Style = AnsiColor::Cyan.on_default().bold();
/// What tools answered.
pub const TOOL: Style = AnsiColor::Yellow.on_default();
/// What went wrong.
pub const BAD: Style = AnsiColor::Red.on_default();

/// Where a command prints to.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<AutoStream<io::Stdout>>,
    /// The terminal's, if it is one.
    columns: Option<usize>,
    zone: TimeZone,
}

impl Output {
    /// Standard output.
    pub fn new(utc: bool) -> Self {
        let columns = io::stdout().is_terminal().then(|| {
            let size = terminal_size::terminal_size_of(io::stdout());
            size.map_or(UNKNOWN_COLUMNS, |(width, _)| usize::from(width.0))
        });
        Self {
            out: BufWriter::new(AutoStream::auto(io::stdout())),
            columns,
            zone: if utc {
                TimeZone::UTC
            } else {
                TimeZone::system()
            },
        }
    }

    /// How wide tables may be; None in a pipe.
    pub fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// How wide prose may be.
    pub fn prose(&self) -> usize {
        self.columns.unwrap_or(PROSE_COLUMNS).min(PROSE_COLUMNS)
    }

    /// The zone in which times are shown.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// A time as it is shown: to the minute, or to the second. What is no time is shown as it is.
    pub fn time(&self, text: &str, seconds: bool) -> String {
        match text.parse::<Timestamp>() {
            Ok(time) => {
                let format = if seconds {
                    "%Y-%m-%d %H:%M:%S"
                } else {
                    "%Y-%m-%d %H:%M"
                };
                let time = time.to_zoned_datetime(self.zone.clone());
                time.strftime(format).to_string()
            }
            Err(_) => safe_line(text).into_owned(),
        }
    }

    /// A line. It may hold styles of ours, and nothing that was not made safe.
    pub fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(line.trim_end().as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// A line in one style.
    pub fn styled(&mut self, style: Style, line: &str) -> io::Result<()> {
        self.line(&format!("{style}{line}{style:#}"))
    }

    /// A name and what it is, one line.
    pub fn field(&mut self, name: &str, value: &str) -> io::Result<()> {
        if value.is_empty() {
            return Ok(());
        }
        let value = safe(value);
        self.line(&format!("{DIM}{name:<10}{DIM:#} {value}"))
    }

    /// A JSON value on a line of its own.
    pub fn json(&mut self, value: &Value) -> io::Result<()> {
        // JSON escapes what a terminal would obey, but for the C1 controls.
        let text = value.to_string();
        let mut line = String::with_capacity(text.len() + 1);
        for c in text.chars() {
            if ('\u{7f}'..='\u{9f}').contains(&c) {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            } else {
                line.push(c);
            }
        }
        line.push('\n');
        self.out.write_all(line.as_bytes())
    }

    /// The bytes themselves, for exports.
    pub fn raw(&mut self) -> io::Result<io::StdoutLock<'static>> {
        self.out.flush()?;
        Ok(io::stdout().lock())
    }

    /// Writes what is still held back.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
