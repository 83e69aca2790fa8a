//! Bytes on the disk, before and after each store has made itself small, and bytes written for each byte of content.
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench size -- [--quick] [--json] [--dir PATH]
//! ```
//!
//! Other stores get each record once and one small record for a compaction or a generation: the most frugal thing that a
//! host could do with them. See `docs/performance.md`.

mod fixtures;

use common::command::Command;
use common::corpus::Text;
use common::counted::{Counters, Work};
use common::ours::compact;
use common::peer::Kind;
use common::places::{allocated, scratch};
use common::report::{Cell, Report, Table, bytes};
use common::{Result, files, fjall, sqlite};
use fixtures::{Fixture, Step};
use transcript_redb::{Store, StoreFile, TranscriptMessage};

const ABOUT: &str = "\
size - bytes on the disk and bytes written, beside SQLite, fjall and JSONL

sections: \"instructions\", \"tool outputs\", \"image\", \"generations\", \"mix\"";

const PEERS: [Kind; 3] = [
    Kind {
        name: "SQLite",
        ..sqlite::ONE_CONNECTION
    },
    fjall::FJALL,
    files::JSONL,
];

fn main() -> Result<()> {
    let Some(command) = Command::read(ABOUT)? else {
        return Ok(());
    };
    let text = Text::load();
    let mut report = Report::new("size", command.json, &text.source, &command.folder);
    for (section, make) in fixtures::ALL {
        if command.wants(section) {
            measure(&command, &mut report, section, &make(text, command.quick))?;
        }
    }
    report.finish()
}

/// Bytes that a store occupies, closed.
struct Sizes {
    name: &'static str,
    written: f64,
    /// After it has made itself small, where it can.
    compacted: Option<f64>,
}

fn measure(command: &Command, report: &mut Report, section: &str, fixture: &Fixture) -> Result<()> {
    let (ours, counts) = ours(command, fixture)?;
    let mut sizes = vec![ours];
    for kind in PEERS {
        sizes.push(peer(command, &kind, fixture)?);
    }
    let of = |name: &str| sizes.iter().find(|sizes| sizes.name == name);
    let jsonl = of(files::JSONL.name).map_or(f64::NAN, |sizes| sizes.written);
    let unique = fixture.unique as f64;

    let mut table = Table::new(
        format!("{section}: {}", fixture.about),
        &[
            "",
            "as written",
            "to unique content",
            "to JSONL",
            "compacted",
            "compacted to unique",
            "compacted to JSONL",
        ],
    );
    table.note(format!(
        "{} of content in {} records, {} of it unique; bytes of allocated blocks, stores closed",
        bytes(fixture.content as f64),
        fixture.records,
        bytes(unique)
    ));
    for sizes in &sizes {
        let compacted = sizes.compacted;
        table.row(vec![
            sizes.name.into(),
            Cell::Bytes(sizes.written),
            Cell::ratio(sizes.written, unique),
            Cell::ratio(sizes.written, jsonl),
            compacted.map_or(Cell::None, Cell::Bytes),
            compacted.map_or(Cell::None, |bytes| Cell::ratio(bytes, unique)),
            compacted.map_or(Cell::None, |bytes| Cell::ratio(bytes, jsonl)),
        ]);
    }
    report.table(&table);

    let mut table = Table::new(
        format!("{section}: what this crate wrote"),
        &[
            "",
            "written",
            "per byte of new content",
            "syncs",
            "per call",
        ],
    );
    for (name, work) in counts {
        table.row(vec![
            name.into(),
            Cell::Bytes(work.bytes as f64),
            Cell::Number(work.bytes as f64 / fixture.content as f64, 2),
            Cell::Number(work.syncs as f64, 0),
            Cell::Number(work.syncs as f64 / fixture.steps.len() as f64, 2),
        ]);
    }
    report.table(&table);
    Ok(())
}

type Counts = Vec<(&'static str, Work)>;

/// Writes the fixture through counting files, one call a step.
fn ours(command: &Command, fixture: &Fixture) -> Result<(Sizes, Counts)> {
    let place = scratch(&command.folder)?;
    let counters = Counters::default();
    let store = counters.open(Store::builder(), place.path())?;
    fixture.write(&store)?;
    store.checkpoint()?;
    let files = [
        ("database", StoreFile::Database),
        ("journal", StoreFile::Journal),
    ];
    let mut counts: Counts = files
        .iter()
        .map(|(name, file)| (*name, counters.of(*file)))
        .collect();
    counts.push(("both", counters.all()));
    drop(store);
    let written = allocated(place.path())? as f64;
    let store = counters.open(Store::builder(), place.path())?;
    compact(&store)?;
    drop(store);
    let compacted = Some(allocated(place.path())? as f64);
    let name = "this crate";
    Ok((
        Sizes {
            name,
            written,
            compacted,
        },
        counts,
    ))
}

/// Loads the fixture's records; what is kept by a compaction or a generation is not written again.
fn peer(command: &Command, kind: &Kind, fixture: &Fixture) -> Result<Sizes> {
    let place = scratch(&command.folder)?;
    let peer = (kind.open)(place.path())?;
    for step in &fixture.steps {
        match step {
            Step::Rows(rows) => peer.load(0, rows)?,
            Step::Compact { keep, rows } | Step::Generation { keep, rows } => {
                let marker = format!("from here on the first and the last {keep} rows are kept");
                peer.load(0, &[TranscriptMessage::system(marker)])?;
                peer.load(0, rows)?;
            }
        }
    }
    peer.checkpoint()?;
    drop(peer);
    let written = allocated(place.path())? as f64;
    let mut compacted = None;
    if kind.lookups {
        let peer = (kind.open)(place.path())?;
        peer.compact()?;
        drop(peer);
        compacted = Some(allocated(place.path())? as f64);
    }
    Ok(Sizes {
        name: kind.name,
        written,
        compacted,
    })
}
