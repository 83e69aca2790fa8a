//! Reads: resuming a session, looking things up, pages of the display, alone and beside 64 writers.
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench reads -- [--quick] [--json] [--dir PATH]
//! ```
//!
//! The same records lie in every store. Stores take turns within a round. See `docs/performance.md`.

mod lookups;
mod resume;

use std::time::Duration;

use common::command::Command;
use common::corpus::Text;
use common::measure::of_rounds;
use common::peer::Kind;
use common::report::{Cell, Report};
use common::{Result, files, fjall, ours, sqlite};

const ABOUT: &str = "\
reads - resume, look-ups and pages, beside SQLite, fjall and JSONL

sections: \"resume\", \"beside writers\", \"records\", \"sessions\"";

fn main() -> Result<()> {
    let Some(command) = Command::read(ABOUT)? else {
        return Ok(());
    };
    let text = Text::load();
    let mut report = Report::new("reads", command.json, &text.source, &command.folder);
    if command.wants("resume") {
        resume::run(&command, text, &mut report)?;
    }
    if command.wants("beside writers") {
        lookups::beside_writers(&command, text, &mut report)?;
    }
    if command.wants("records") {
        let lengths = command.pick(&[10_000, 100_000, 1_000_000][..], &[1_000]);
        for &records in lengths {
            // One long session, and nine that share a tenth.
            let mut sessions = vec![(0, records * 9 / 10)];
            sessions.extend((1..10).map(|session| (session, records / 90)));
            let title =
                format!("records: {records} in 10 sessions, 9 of 10 in the one that is paged");
            lookups::alone(&command, text, &mut report, &title, &sessions)?;
        }
    }
    if command.wants("sessions") {
        let counts = command.pick(&[10, 1_000, 100_000][..], &[100]);
        for &count in counts {
            let sessions: Vec<_> = (0..count).map(|session| (session, 6)).collect();
            let title = format!("sessions: {count} of 6 records each");
            lookups::alone(&command, text, &mut report, &title, &sessions)?;
        }
    }
    report.finish()
}

/// The stores that are compared, ours first.
const KINDS: [Kind; 4] = [
    Kind {
        name: "this crate",
        ..ours::APPEND_ROWS
    },
    Kind {
        name: "SQLite",
        ..sqlite::ONE_CONNECTION
    },
    fjall::FJALL,
    files::JSONL,
];

/// The median of rounds, the p99, and how many times the first one's time the median is.
fn spread(rounds: &[Vec<Duration>], first: f64) -> [Cell; 3] {
    let middle = of_rounds(rounds, 0.5);
    [
        Cell::seconds(middle),
        Cell::seconds(of_rounds(rounds, 0.99)),
        Cell::ratio(middle, first),
    ]
}
