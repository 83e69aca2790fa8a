//! The fuzz targets on a stable compiler: the corpus as it is, and a number of variations of it.
//!
//! `FUZZ_RUNS` sets how many variations each target gets, `FUZZ_SEED` which. The default is always the same ones. An input
//! that fails is printed as hex: put its bytes into `corpus/TARGET/` and it is tried first in every run.

use std::fmt::Write as _;
use std::path::Path;

use transcript_redb_fuzz::{TARGETS, Target};

const DEFAULT_RUNS: u64 = 500;
const DEFAULT_SEED: u64 = 1;
const LONGEST: usize = 4096;

/// Says which input failed.
struct Report<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex = self.input.iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("a string takes it");
                hex
            });
            eprintln!("target {} fails on input {hex}", self.target);
        }
    }
}

fn run((name, target): Target, input: &[u8]) {
    let _report = Report {
        target: name,
        input,
    };
    target(input);
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("each target has a corpus")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
        .iter()
        .map(|file| std::fs::read(file).expect("the corpus can be read"))
        .collect()
}

#[test]
fn the_corpus_keeps_the_promises() {
    for target in TARGETS {
        for input in corpus(target.0) {
            run(target, &input);
        }
    }
}

#[test]
fn variations_of_the_corpus_keep_the_promises() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect(name))
    };
    let (runs, seed) = (
        number("FUZZ_RUNS", DEFAULT_RUNS),
        number("FUZZ_SEED", DEFAULT_SEED),
    );
    for target in TARGETS {
        println!("{}: {runs} runs, seed {seed}", target.0);
        let corpus = corpus(target.0);
        let mut random = Random(seed);
        for _ in 0..runs {
            run(target, &random.variation(&corpus));
        }
    }
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    /// An input of the corpus after a few cuts, repeats, splices and changed bytes; sometimes bytes from nowhere.
    fn variation(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        if self.below(10) == 0 {
            input = (0..self.below(64))
                .map(|_| self.next().to_le_bytes()[0])
                .collect();
        }
        for _ in 0..=self.below(6) {
            let at = self.below(input.len());
            match self.below(6) {
                0 if !input.is_empty() => input[at] = self.next().to_le_bytes()[0],
                1 if !input.is_empty() => input[at] ^= 1 << self.below(8),
                2 => {
                    let byte = *b"\"{}[]:,\\\n_.g0".get(self.below(13)).unwrap_or(&b' ');
                    input.insert(at.min(input.len()), byte);
                }
                3 => {
                    let end = at + self.below(input.len() - at + 1);
                    input.drain(at..end);
                }
                4 => {
                    let end = at + self.below((input.len() - at).min(64) + 1);
                    let part = input[at..end].to_vec();
                    input.splice(at..at, part);
                }
                _ => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len());
                    let until = from + self.below(other.len() - from + 1);
                    input.splice(at..at, other[from..until].iter().copied());
                }
            }
        }
        input.truncate(LONGEST);
        input
    }
}
