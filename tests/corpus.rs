//! Real files of other programs, against what an independent script counted in them.
//!
//! The files are not part of the project. The test looks for them in `../shared/corpus`, or where `TRANSCRIPT_CORPUS`
//! says, and says so when they are not there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

use std::path::PathBuf;

use serde_json::Value;
use transcript_redb::interchange::{self, BadClass, FileReport};
use transcript_redb::serde_json;

fn corpus() -> Option<(PathBuf, Value)> {
    let folder = match std::env::var_os("TRANSCRIPT_CORPUS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus")),
    };
    let Ok(facts) = std::fs::read_to_string(folder.join("facts.json")) else {
        eprintln!(
            "skipped: there is no corpus of real files in {}",
            folder.display()
        );
        return None;
    };
    Some((
        folder,
        serde_json::from_str(&facts).expect("facts are JSON"),
    ))
}

/// Where a fact and a correct reading differ: the file, the figure, what a correct reading gives, and why.
const DIFFERENCES: &[(&str, &str, u64, &str)] = &[];

/// The lines that are JSON, whatever its shape: what is left of all lines without the blank and the bad ones.
fn parsable(report: &FileReport) -> u64 {
    let mut bad: Vec<u64> = report
        .quarantined
        .iter()
        .filter(|bad| !matches!(bad.class, BadClass::WrongShape | BadClass::Bom))
        .map(|bad| bad.line)
        .collect();
    bad.dedup();
    let glued = glued_whole(report, &bad);
    report.lines - report.blank_lines - bad.len() as u64 - glued
}

/// Lines of several whole records, which are quarantined nowhere. No file of the corpus has more than two on a line.
fn glued_whole(report: &FileReport, bad: &[u64]) -> u64 {
    if bad.is_empty() {
        report.glued_records / 2
    } else {
        0
    }
}

#[test]
fn reports_agree_with_what_was_counted_independently() {
    let Some((folder, facts)) = corpus() else {
        return;
    };
    let mut wrong = Vec::new();
    let mut files = 0;
    for (name, fact) in facts.as_object().expect("an object of files") {
        let format = fact["format"].as_str().unwrap_or_default();
        let Some(codec) = interchange::codec(format) else {
            continue;
        };
        let path = folder.join(name);
        let found = interchange::detect_file(&path).expect("the file can be read");
        let empty = fact["bytes"] == 0;
        if found.map(interchange::Codec::name) != (!empty).then_some(format) {
            wrong.push(format!("{name}: detected as {found:?}"));
        }
        let report = interchange::inspect(&path, codec).expect("the file can be read");
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let mut expect = vec![
            ("bytes", report.bytes, &fact["bytes"]),
            ("lines", report.lines, &fact["lines"]),
            ("blank_lines", report.blank_lines, &fact["blank_lines"]),
            ("parsable_lines", parsable(&report), &fact["parsable_lines"]),
            (
                "glued_records",
                report.glued_records,
                &fact["records_inside_glued"],
            ),
        ];
        let unparsable: u64 = report
            .quarantined
            .iter()
            .filter(|bad| bad.class != BadClass::WrongShape)
            .count() as u64
            + report.glued_records / 2;
        expect.push(("unparsable_lines", unparsable, &fact["unparsable_lines"]));
        let sums;
        let mut to_cache = None;
        match format {
            "claude-code" => {
                let tokens = &fact["tokens_dedup"];
                let cached = number(&tokens["cache_read_input_tokens"]);
                let written = number(&tokens["cache_creation_input_tokens"]);
                to_cache = Some(Value::from(written));
                sums = [
                    Value::from(number(&tokens["input_tokens"]) + cached + written),
                    tokens["output_tokens"].clone(),
                    Value::from(cached),
                ];
                expect.push((
                    "distinct_message_ids",
                    report.distinct_message_ids,
                    &fact["distinct_message_ids"],
                ));
                expect.push(("compactions", report.compactions, &fact["compactions"]));
            }
            "codex" => {
                let tokens = &fact["tokens_dedup_from_totals"];
                sums = ["input_tokens", "output_tokens", "cached_input_tokens"]
                    .map(|key| Value::from(number(&tokens[key])));
                expect.push(("compactions", report.compactions, &fact["compactions"]));
            }
            _ => {
                sums = [0, 0, 0].map(Value::from);
                expect.push(("messages", report.messages, &fact["messages"]));
                expect.push(("sessions", report.sessions, &fact["conversations"]));
            }
        }
        expect.push(("input_tokens", report.input_tokens, &sums[0]));
        expect.push(("output_tokens", report.output_tokens, &sums[1]));
        expect.push(("cached_input_tokens", report.cached_input_tokens, &sums[2]));
        if let Some(written) = &to_cache {
            expect.push(("cache_write_tokens", report.cache_write_tokens, written));
        }
        for (figure, got, counted) in expect {
            let known = DIFFERENCES
                .iter()
                .find(|(file, of, ..)| *file == name && *of == figure);
            let right = known.map_or(number(counted), |(_, _, right, _)| *right);
            if got != right {
                wrong.push(format!("{name}: {figure} is {got}, counted were {counted}"));
            }
        }
        files += 1;
    }
    assert!(files > 20, "only {files} files were read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
