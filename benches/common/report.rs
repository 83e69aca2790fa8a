//! Results as aligned tables, or as JSON.

use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, presets};
use serde_json::{Map, Value, json};

use crate::Result;

/// One value of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    Text(String),
    Time(Duration),
    /// A number, with this many decimals.
    Number(f64, usize),
    /// How many times as much.
    Ratio(f64),
    Bytes(f64),
    /// Not measured, or there is nothing to measure.
    None,
}

impl Cell {
    /// A ratio of two numbers; nothing where one of them is none.
    pub fn ratio(of: f64, to: f64) -> Self {
        let ratio = of / to;
        if ratio.is_finite() {
            Self::Ratio(ratio)
        } else {
            Self::None
        }
    }

    /// A time in seconds.
    pub fn seconds(seconds: f64) -> Self {
        Duration::try_from_secs_f64(seconds).map_or(Self::None, Self::Time)
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Time(time) => self::time(*time),
            Self::Number(number, decimals) => format!("{number:.decimals$}"),
            Self::Ratio(ratio) => format!("{ratio:.2}x"),
            Self::Bytes(bytes) => self::bytes(*bytes),
            Self::None => "-".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Time(time) => json!(time.as_secs_f64() * 1e6),
            Self::Number(number, _) | Self::Ratio(number) | Self::Bytes(number) => json!(number),
            Self::None => Value::Null,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A time as people read it.
pub fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..100.0 => format!("{micros:.1} us"),
        ..1_000.0 => format!("{micros:.0} us"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// A size as people read it.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        ..1_024.0 => format!("{bytes:.0} B"),
        ..1_048_576.0 => format!("{:.1} KiB", bytes / 1_024.0),
        _ => format!("{:.1} MiB", bytes / 1_048_576.0),
    }
}

/// A table of results.
pub struct Table {
    title: String,
    notes: Vec<String>,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            notes: Vec::new(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// A line between title and table.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    fn print(&self) {
        println!("\n{}", self.title);
        for note in &self.notes {
            println!("  {note}");
        }
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row.iter().map(Cell::shown));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let cells = self.columns.iter().cloned().zip(row.iter().map(Cell::json));
                Value::Object(cells.collect())
            })
            .collect();
        json!({"title": self.title, "notes": self.notes, "rows": rows})
    }
}

/// The results of one run: tables as they come, or one JSON object at the end.
pub struct Report {
    name: &'static str,
    json: bool,
    facts: Map<String, Value>,
    tables: Vec<Value>,
}

impl Report {
    /// Begins a report, with what is known of the machine and of the text that is written.
    pub fn new(name: &'static str, json: bool, text: &str, folder: &Path) -> Self {
        let mut report = Self {
            name,
            json,
            facts: Map::new(),
            tables: Vec::new(),
        };
        report.fact("text", text);
        report.fact("folder", &folder.display().to_string());
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        report.fact("machine", &format!("{cores} cores, {}", processor()));
        let build = if cfg!(debug_assertions) {
            "UNOPTIMIZED: the figures mean little"
        } else {
            "optimized"
        };
        report.fact("build", build);
        report
    }

    /// Something that holds for the whole run.
    pub fn fact(&mut self, name: &str, value: &str) {
        if !self.json {
            println!("{name}: {value}");
        }
        self.facts.insert(name.to_owned(), json!(value));
    }

    pub fn table(&mut self, table: &Table) {
        if !self.json {
            table.print();
        }
        self.tables.push(table.json());
    }

    /// Ends the report.
    pub fn finish(self) -> Result<()> {
        if self.json {
            let report =
                json!({"benchmark": self.name, "facts": self.facts, "tables": self.tables});
            println!("{}", serde_json::to_string_pretty(&report)?);
        }
        Ok(())
    }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| line.split_once(": "));
    name.map_or("unknown", |(_, name)| name).to_owned()
}
