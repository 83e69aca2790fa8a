//! Texts of lognormal lengths, cut from real transcripts or from words.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Result;

const MEDIAN_BYTES: f64 = 900.0;
const SIGMA: f64 = 1.5;
const MAX_BYTES: f64 = 400_000.0;

const WORDS: [&str; 24] = [
    "harbour",
    "tide",
    "vessel",
    "weather",
    "forecast",
    "ledger",
    "invoice",
    "schedule",
    "customer",
    "warehouse",
    "container",
    "pressure",
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "with",
    "as",
    "was",
    "on",
];

/// A random number generator that gives the same numbers in every run (`SplitMix64`).
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
        usize::try_from(self.next() % limit as u64).expect("less than a usize")
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn length(&mut self) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        (MEDIAN_BYTES * (SIGMA * normal).exp()).clamp(20.0, MAX_BYTES)
    }
}

/// `count` texts. Where the folder's text does not suffice it is used again, from another place on.
pub fn texts(folder: Option<&Path>, count: usize) -> Result<Vec<String>> {
    let mut random = Random(5);
    let text = match folder {
        Some(folder) => strings(folder, &mut random)?,
        None => words(&mut random, 8 << 20),
    };
    println!("{:.1} MB of text to cut from", text.len() as f64 / 1e6);
    let mut at = 0;
    let mut texts = Vec::with_capacity(count);
    while texts.len() < count {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 20 and 400,000"
        )]
        let length = random.length() as usize;
        if at + length > text.len() {
            at = random.below(1000);
            continue;
        }
        let (start, end) = (boundary(&text, at), boundary(&text, at + length));
        texts.push(text[start..end].to_owned());
        at += length;
    }
    Ok(texts)
}

/// The start of the character that `at` lies in.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default()
}

fn words(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(WORDS[random.below(WORDS.len())]);
        text.push(' ');
    }
    text
}

/// All strings of the files below a folder that read as text, each once, in a random order.
fn strings(folder: &Path, random: &mut Random) -> Result<String> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    files.sort();
    let mut seen = HashSet::new();
    let mut texts = Vec::new();
    for file in files {
        let content = std::fs::read_to_string(&file).unwrap_or_default();
        let values: Vec<Value> = match serde_json::from_str(&content) {
            Ok(value) => vec![value],
            Err(_) => content
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
        };
        let mut found = Vec::new();
        values.iter().for_each(|value| collect(value, &mut found));
        texts.extend(found.into_iter().filter(|text| seen.insert(text.clone())));
    }
    for index in (1..texts.len()).rev() {
        texts.swap(index, random.below(index + 1));
    }
    Ok(texts.join("\n"))
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        // Signatures and images have no spaces.
        Value::String(text) if text.len() >= 30 && text.chars().take(200).any(|it| it == ' ') => {
            found.push(text.clone());
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(values) => values.values().for_each(|value| collect(value, found)),
        _ => {}
    }
}
