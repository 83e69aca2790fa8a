//! What imports and exports take: time, and the most memory that the process occupied.
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench import -- [--quick] [--json] [--dir PATH] [--only NAME]
//! ```
//!
//! Files are made of real text: a long one, ones of a single long line, and ones of many lines whose parents are known or
//! not. Each step runs in a process of its own, whose peak the system tells. See `docs/performance.md`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use common::Result;
use common::command::Command;
use common::corpus::Text;
use common::measure::timed;
use common::places::{peak_resident, scratch};
use common::report::{Cell, Report, Table, bytes};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution as _, LogNormal};
use serde_json::{Value, json};
use transcript_redb::interchange::{self, Folder};
use transcript_redb::{ExportScope, Store};
use uuid::Uuid;

const ABOUT: &str = "\
import - time and memory of imports and exports

sections: stream, line, lines";

const CACHE_BYTES: usize = 16 << 20;

fn main() -> Result<()> {
    let Some(command) = Command::read(ABOUT)? else {
        return Ok(());
    };
    if let Some(arguments) = &command.child {
        return child(arguments);
    }
    let text = Text::load();
    let mut report = Report::new("import", command.json, &text.source, &command.folder);
    let bench = Bench {
        text,
        command: &command,
    };
    if command.wants("stream") {
        report.table(&bench.stream()?);
    }
    if command.wants("line") {
        report.table(&bench.line()?);
    }
    if command.wants("lines") {
        report.table(&bench.lines()?);
    }
    report.finish()
}

struct Bench<'a> {
    text: &'a Text,
    command: &'a Command,
}

/// How a file of many lines is made.
#[derive(Clone, Copy, Default)]
struct Shape {
    lines: Option<usize>,
    bytes: Option<u64>,
    /// The text of the line in the middle.
    longest: Option<usize>,
    /// Each line names a parent that is nowhere.
    broken: bool,
}

impl Bench<'_> {
    fn stream(&self) -> Result<Table> {
        let megabytes: u64 = self.command.pick(1_000, 4);
        let place = scratch(&self.command.folder)?;
        let file = place.path().join("session.jsonl");
        let shape = Shape {
            bytes: Some(megabytes * 1_000_000),
            ..Shape::default()
        };
        let lines = self.write(&file, shape)?;
        let size = fs::metadata(&file)?.len();
        let mut table = Table::new(
            format!("stream: a Claude Code session of {megabytes} MB, {lines} lines"),
            &["", "time", "MB a second", "peak memory", "beyond the cache"],
        );
        table.note(format!("cache: {}", bytes(CACHE_BYTES as f64)));
        let store = place.path().join("store.redb");
        for (name, role) in [
            ("import", "import"),
            ("the same again", "import"),
            ("export, the file's bytes", "original"),
            ("export, native", "native"),
        ] {
            let done = run(role, &store, &file, "claude-code")?;
            let beyond = done.peak.saturating_sub(CACHE_BYTES as u64);
            table.row(vec![
                name.into(),
                Cell::Time(done.time),
                Cell::Number(size as f64 / 1e6 / done.time.as_secs_f64(), 0),
                Cell::Bytes(done.peak as f64),
                Cell::Bytes(beyond as f64),
            ]);
        }
        Ok(table)
    }

    fn line(&self) -> Result<Table> {
        let megabytes: usize = self.command.pick(100, 2);
        let mut random = StdRng::seed_from_u64(2);
        let content = self.text.piece(&mut random, megabytes * 1_000_000);
        let place = scratch(&self.command.folder)?;
        let mut table = Table::new(
            format!("line: a file of one line of {megabytes} MB"),
            &["", "time", "peak memory", "to the line"],
        );
        let message = |content: &str| json!({"role": "user", "content": content});
        let id = Uuid::from_u128(7);
        let time = "2026-01-01T00:00:00.000Z";
        let files = [
            (
                "claude-code",
                json!({"type": "user", "sessionId": "s", "uuid": id, "timestamp": time,
                    "message": message(&content)}),
            ),
            (
                "codex",
                json!({"timestamp": time, "type": "response_item", "payload": {"type": "message",
                    "role": "user", "content": [{"type": "input_text", "text": content}]}}),
            ),
            ("chat", json!({"messages": [message(&content)]})),
            (
                "record-log",
                json!({"uuid": id, "session_id": "s", "type": "message", "timestamp": time,
                    "message": message(&content)}),
            ),
        ];
        let mut row = |name: &str, codec: &str, file: &Path, store: &Path| -> Result<()> {
            let done = run("import", store, file, codec)?;
            let length = fs::metadata(file)?.len();
            table.row(vec![
                Cell::Text(name.to_owned()),
                Cell::Time(done.time),
                Cell::Bytes(done.peak as f64),
                Cell::ratio(done.peak as f64, length as f64),
            ]);
            Ok(())
        };
        for (codec, line) in files {
            let file = place.path().join(format!("{codec}.jsonl"));
            write_line(&mut BufWriter::new(File::create(&file)?), &line)?;
            let store = place.path().join(format!("{codec}.redb"));
            row(codec, codec, &file, &store)?;
        }
        let exported = place.path().join("chat.redb.native");
        run("native", &place.path().join("chat.redb"), &exported, "chat")?;
        let store = place.path().join("native.redb");
        row(
            "native, with its source; to both",
            "native",
            &exported,
            &store,
        )?;
        Ok(table)
    }

    fn lines(&self) -> Result<Table> {
        let many = self.command.pick(100_000, 1_000);
        let few = self.command.pick(4_801, 48);
        let place = scratch(&self.command.folder)?;
        let mut table = Table::new(
            "lines: Claude Code sessions",
            &["", "size", "time", "microseconds a line", "peak memory"],
        );
        let whole = Shape {
            lines: Some(many),
            ..Shape::default()
        };
        let shapes = [
            ("each line behind its parent", whole),
            (
                "a tenth of them",
                Shape {
                    lines: Some(many / 10),
                    ..whole
                },
            ),
            (
                "each with a parent that is nowhere",
                Shape {
                    broken: true,
                    ..whole
                },
            ),
            (
                "one of 877 KB among them",
                Shape {
                    lines: Some(few),
                    longest: Some(877_000),
                    ..Shape::default()
                },
            ),
        ];
        for (number, (name, shape)) in shapes.into_iter().enumerate() {
            let file = place.path().join(format!("{number}.jsonl"));
            let lines = self.write(&file, shape)?;
            let store = place.path().join(format!("{number}.redb"));
            let done = run("import", &store, &file, "claude-code")?;
            table.row(vec![
                Cell::Text(format!("{lines} lines, {name}")),
                Cell::Bytes(fs::metadata(&file)?.len() as f64),
                Cell::Time(done.time),
                Cell::Number(done.time.as_secs_f64() * 1e6 / lines as f64, 1),
                Cell::Bytes(done.peak as f64),
            ]);
        }
        Ok(table)
    }

    /// Writes a session as Claude Code does; answers its lines.
    fn write(&self, path: &Path, shape: Shape) -> Result<usize> {
        let mut random = StdRng::seed_from_u64(1);
        let lengths = LogNormal::new(900_f64.ln(), 1.2)?;
        let mut file = BufWriter::new(File::create(path)?);
        let (mut lines, mut written) = (0, 0);
        let mut parent: Option<Uuid> = None;
        while shape.lines.is_none_or(|most| lines < most)
            && shape.bytes.is_none_or(|most| written < most)
        {
            let longest = shape
                .longest
                .filter(|_| Some(lines) == shape.lines.map(|it| it / 2));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a length between 0 and 400,000"
            )]
            let length = lengths.sample(&mut random).min(400_000.0) as usize;
            let content = self.text.piece(&mut random, longest.unwrap_or(length));
            let uuid = Uuid::from_u128(random.random());
            let known = if shape.broken {
                Some(Uuid::from_u128(random.random()))
            } else {
                parent
            };
            let time = format!(
                "2026-01-01T{:02}:{:02}:{:02}.{:03}Z",
                lines / 3_600_000 % 24,
                lines / 60_000 % 60,
                lines / 1_000 % 60,
                lines % 1_000
            );
            let mut line =
                json!({"parentUuid": known, "sessionId": "s", "uuid": uuid, "timestamp": time});
            let (kind, message) = if lines % 2 == 0 {
                ("user", json!({"role": "user", "content": content}))
            } else {
                let usage = json!({"input_tokens": 100, "output_tokens": 20});
                let content = json!([{"type": "text", "text": content}]);
                let message = json!({"id": format!("msg_{lines}"), "role": "assistant", "model": "m",
                    "content": content, "usage": usage});
                ("assistant", message)
            };
            line["type"] = kind.into();
            line["message"] = message;
            written += write_line(&mut file, &line)?;
            parent = Some(uuid);
            lines += 1;
        }
        file.flush()?;
        Ok(lines)
    }
}

fn write_line(file: &mut impl Write, line: &Value) -> Result<u64> {
    let text = line.to_string();
    writeln!(file, "{text}")?;
    file.flush()?;
    Ok(text.len() as u64 + 1)
}

/// What a child process did.
struct Done {
    time: Duration,
    /// The most memory that it occupied, bytes.
    peak: u64,
}

/// Runs a step in a process of its own.
fn run(role: &str, store: &Path, file: &Path, codec: &str) -> Result<Done> {
    let output = Process::new(std::env::current_exe()?)
        .arg("--child")
        .arg(role)
        .args([store, file])
        .arg(codec)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next().ok_or("the child says two numbers");
    Ok(Done {
        time: Duration::from_micros(next()??),
        peak: next()??,
    })
}

fn child(arguments: &[String]) -> Result<()> {
    let [role, store, file, codec] = arguments else {
        return Err("a role, a store, a file and a codec".into());
    };
    let store = Store::builder().cache_bytes(CACHE_BYTES).open(store)?;
    let ((), time) = timed(|| match role.as_str() {
        "import" => {
            let codec = interchange::codec(codec).ok_or("there is such a codec")?;
            store.import(file, codec)?;
            Ok(store.checkpoint()?)
        }
        "original" => {
            let folder = PathBuf::from(file).with_extension("originals");
            let mut target = Folder::new(&folder);
            for source in store.sources()? {
                store.export_original(
                    source.id,
                    &mut interchange::Target::file(&mut target, "original.jsonl")?,
                )?;
            }
            Ok(())
        }
        _ => {
            let out = PathBuf::from(file).with_extension("native");
            let mut out = BufWriter::new(File::create(out)?);
            store.export_native(ExportScope::All, &mut out)?;
            Ok(out.flush()?)
        }
    })?;
    println!("{} {}", time.as_micros(), peak_resident().unwrap_or(0));
    Ok(())
}
