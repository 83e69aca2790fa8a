//! Transcripts in which content repeats, and one as hosts write them.

use std::collections::HashSet;

use common::corpus::Text;
use common::ours::session;
use common::work::meta;
use common::{Result, work};
use rand::{Rng, RngExt as _, SeedableRng as _, distr::Alphanumeric, rngs::StdRng};
use rand_distr::{Distribution as _, LogNormal};
use transcript_redb::{
    AppendRows, Store, TranscriptLocator as _, TranscriptMessage, TranscriptPart,
    TranscriptToolCall, TranscriptTurn,
};

/// What one call does.
pub enum Step {
    /// Appends rows.
    Rows(Vec<TranscriptMessage>),
    /// Keeps the first row and the last ones, and appends rows.
    Compact {
        keep: usize,
        rows: Vec<TranscriptMessage>,
    },
    /// Begins a successor generation with the first row and the last ones, and appends rows.
    Generation {
        keep: usize,
        rows: Vec<TranscriptMessage>,
    },
}

impl Step {
    fn rows(&self) -> &[TranscriptMessage] {
        match self {
            Self::Rows(rows) | Self::Compact { rows, .. } | Self::Generation { rows, .. } => rows,
        }
    }
}

/// A session to write.
pub struct Fixture {
    pub about: &'static str,
    pub steps: Vec<Step>,
    pub records: usize,
    /// Bytes of text, arguments and images in the rows of all steps.
    pub content: usize,
    /// The same, each distinct piece once.
    pub unique: usize,
}

type Make = fn(&Text, bool) -> Fixture;

pub const ALL: [(&str, Make); 5] = [
    ("instructions", instructions),
    ("tool outputs", tool_outputs),
    ("image", image),
    ("generations", generations),
    ("mix", mix),
];

impl Fixture {
    fn new(about: &'static str, steps: Vec<Step>) -> Self {
        let (mut records, mut content, mut unique) = (0, 0, 0);
        let mut seen = HashSet::new();
        for row in steps.iter().flat_map(Step::rows) {
            records += 1;
            for piece in pieces(row) {
                content += piece.len();
                if seen.insert(piece) {
                    unique += piece.len();
                }
            }
        }
        drop(seen);
        Self {
            about,
            steps,
            records,
            content,
            unique,
        }
    }

    /// Writes the session as a host does, with the rows that it read back.
    pub fn write(&self, store: &Store) -> Result<()> {
        let (locator, meta) = (store.locator(), meta(0));
        let mut session = session(0);
        let mut history = locator.open_session(&session, meta.clone())?;
        history.append_turn(TranscriptTurn::new(&[], &[], &meta))?;
        // The context as it was read, until rows are added.
        let mut read = None;
        for step in &self.steps {
            let (keep, next_generation) = match step {
                Step::Rows(rows) => {
                    let token = store.head(&session)?.ok_or("the session is written")?;
                    let rows = AppendRows {
                        rows,
                        ..AppendRows::default()
                    };
                    store.append_rows(&session, &token, rows)?;
                    read = None;
                    continue;
                }
                Step::Compact { keep, .. } => (*keep, false),
                Step::Generation { keep, .. } => (*keep, true),
            };
            let mut live = match read.take() {
                Some(live) => live,
                None => history.messages()?,
            };
            let before = if next_generation {
                (session, history) = locator.begin_generation(&session, meta.clone())?;
                Vec::new()
            } else {
                live.clone()
            };
            let from = live.len().saturating_sub(keep).max(1).min(live.len());
            live.drain(1.min(live.len())..from);
            live.extend_from_slice(step.rows());
            history.append_turn(TranscriptTurn::new(&before, &live, &meta))?;
            if step.rows().is_empty() {
                read = Some(live);
            }
        }
        Ok(())
    }
}

fn pieces(row: &TranscriptMessage) -> impl Iterator<Item = &str> {
    let calls = row.tool_calls.iter().map(|call| call.arguments.as_str());
    let images = row.parts.iter().flatten().filter_map(|part| match part {
        TranscriptPart::Image { url } => Some(url.as_str()),
        _ => None,
    });
    std::iter::once(row.content.as_str())
        .chain(calls)
        .chain(images)
}

/// An instruction block in every other record.
fn instructions(text: &Text, quick: bool) -> Fixture {
    let random = &mut StdRng::seed_from_u64(21);
    let block = text.piece(random, 9_047);
    let count = if quick { 100 } else { 1_759 };
    let steps = (0..count).map(|_| {
        let bytes = random.random_range(500..3_500);
        Step::Rows(vec![
            TranscriptMessage::system(&block),
            TranscriptMessage::user(text.piece(random, bytes)),
        ])
    });
    Fixture::new(
        "a block of 9,047 bytes in 1,759 records, each before a question of 2 KB",
        steps.collect(),
    )
}

/// Every tool output three times, under calls of their own.
fn tool_outputs(text: &Text, quick: bool) -> Fixture {
    let random = &mut StdRng::seed_from_u64(22);
    let outputs: Vec<String> = (0..if quick { 20 } else { 500 })
        .map(|_| {
            let bytes = random.random_range(4_096..40_000);
            text.piece(random, bytes)
        })
        .collect();
    let steps = (0..3 * outputs.len()).map(|number| {
        let id = format!("call_{number}");
        let call = TranscriptToolCall {
            id: id.clone(),
            name: "read_file".to_owned(),
            arguments: format!(r#"{{"path":"src/part_{}.rs"}}"#, number % outputs.len()),
            extra_content: None,
        };
        Step::Rows(vec![
            TranscriptMessage::assistant_with_calls(text.piece(random, 300), vec![call]),
            TranscriptMessage::tool_result(id, &outputs[number % outputs.len()]),
        ])
    });
    Fixture::new(
        "tool outputs of 4 to 40 KB, each three times",
        steps.collect(),
    )
}

/// An image that stays in the context through 40 compactions.
fn image(text: &Text, quick: bool) -> Fixture {
    let random = &mut StdRng::seed_from_u64(23);
    let bytes = if quick { 96_000 } else { 960_000 };
    let image = TranscriptMessage::user_with_parts(vec![
        TranscriptPart::Text {
            text: text.piece(random, 200),
        },
        TranscriptPart::Image {
            url: base64(random, bytes),
        },
    ]);
    let mut steps = vec![Step::Rows(vec![image])];
    for _ in 0..40 {
        steps.push(Step::Rows(work::rows(12, text, random)));
        steps.push(Step::Compact {
            keep: 6,
            rows: work::rows(1, text, random),
        });
    }
    Fixture::new(
        "an image of 960 KB in base64, kept across 40 compactions",
        steps,
    )
}

fn base64(random: &mut impl Rng, bytes: usize) -> String {
    let data = random.sample_iter(Alphanumeric).take(bytes).map(char::from);
    "data:image/png;base64,".chars().chain(data).collect()
}

/// A long session with many successors, each with all rows of the one before.
fn generations(text: &Text, quick: bool) -> Fixture {
    let random = &mut StdRng::seed_from_u64(24);
    let (bytes, count) = if quick {
        (1_000_000, 5)
    } else {
        (100_000_000, 470)
    };
    let mut steps = Vec::new();
    let mut written = 0;
    while written < bytes {
        let rows = work::rows(600, text, random);
        written += work::text_bytes(&rows);
        steps.push(Step::Rows(rows));
    }
    steps.extend((0..count).map(|_| Step::Generation {
        keep: usize::MAX,
        rows: Vec::new(),
    }));
    Fixture::new(
        "470 successor generations of a session of 100 MB, each with all its rows",
        steps,
    )
}

/// Records as long as they are in practice: most are short, a few hold most of the bytes.
fn mix(text: &Text, quick: bool) -> Fixture {
    const MEDIAN: f64 = 900.0;
    // With the cap, the mean is 2.8 KB.
    const SIGMA: f64 = 1.5;
    const CAP: f64 = 400_000.0;
    let random = &mut StdRng::seed_from_u64(25);
    let lengths = LogNormal::new(MEDIAN.ln(), SIGMA).expect("a finite deviation");
    let steps = (0..if quick { 100 } else { 6_000 }).map(|_| {
        let mut rows = work::rows(work::RECORDS, text, random);
        for row in &mut rows {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and the cap"
            )]
            let bytes = lengths.sample(random).clamp(1.0, CAP) as usize;
            row.content = text.piece(random, bytes);
        }
        Step::Rows(rows)
    });
    Fixture::new(
        "records of a realistic mix of lengths (lognormal, median 900 B, at most 400 KB)",
        steps.collect(),
    )
}
