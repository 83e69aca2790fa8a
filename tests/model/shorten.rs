//! Makes a sequence that fails shorter and its operations simpler.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::op::{Around, At, Edit, Meta, Next, Op, Row};
use super::place::{After, Fault};

/// How long this takes at most.
const TIME: Duration = Duration::from_secs(120);

/// Leaves out as much as possible of a sequence that fails. `fails` runs one; it answers the part of it that was needed
/// to fail, and how it failed.
pub fn shorten<D>(
    failing: (Vec<Op>, D),
    fails: impl Fn(&[Op]) -> Option<(Vec<Op>, D)>,
) -> (Vec<Op>, D) {
    let started = Instant::now();
    let in_time = || started.elapsed() < TIME;
    let mut shortest = failing;
    let mut size = shortest.0.len().div_ceil(2);
    while in_time() {
        let mut from = 0;
        let before = shortest.0.len();
        while from < shortest.0.len() && in_time() {
            let mut rest = shortest.0.clone();
            rest.drain(from..(from + size).min(rest.len()));
            match fails(&rest) {
                Some(found) => shortest = found,
                None => from += size,
            }
        }
        if size > 1 {
            size /= 2;
        } else if shortest.0.len() == before {
            break;
        }
    }
    let mut index = 0;
    while index < shortest.0.len() {
        let simpler = simpler(&shortest.0[index]).into_iter().find_map(|op| {
            let mut ops = shortest.0.clone();
            ops[index] = op;
            fails(&ops).filter(|_| in_time())
        });
        match simpler {
            Some(found) => shortest = found,
            None => index += 1,
        }
    }
    shortest
}

/// The same operation with one thing less, in every way.
fn simpler(op: &Op) -> Vec<Op> {
    let mut all = Vec::new();
    match op {
        Op::Turn {
            at,
            prev,
            next,
            meta,
            around,
        } => {
            let turn = |at: &At, next: Next, meta: Meta, around: Around| Op::Turn {
                at: *at,
                prev: prev.clone(),
                next,
                meta,
                around,
            };
            all.extend(simpler_next(next).map(|it| turn(at, it, meta.clone(), around.clone())));
            all.extend(simpler_around(around).map(|it| turn(at, next.clone(), meta.clone(), it)));
            all.extend(simpler_meta(meta).map(|it| turn(at, next.clone(), it, around.clone())));
        }
        Op::Append { at, seed, row } => {
            let append = |seed: Meta, row: Row| Op::Append { at: *at, seed, row };
            all.extend(simpler_row(row).map(|it| append(seed.clone(), it)));
            all.extend(simpler_meta(seed).map(|it| append(it, row.clone())));
        }
        Op::Replace { at, seed, next } => {
            let replace = |seed: Meta, next: Next| Op::Replace {
                at: *at,
                seed,
                next,
            };
            all.extend(simpler_next(next).map(|it| replace(seed.clone(), it)));
            all.extend(simpler_meta(seed).map(|it| replace(it, next.clone())));
        }
        Op::AppendRows {
            token,
            rows,
            meta,
            around,
        } => {
            all.extend(simpler_around(around).map(|around| Op::AppendRows {
                token: *token,
                rows: rows.clone(),
                meta: meta.clone(),
                around,
            }));
        }
        Op::Strike(fault) => {
            all.push(Op::Strike(Fault {
                after: After::Heal,
                ..*fault
            }));
            all.push(Op::Strike(Fault { nth: 1, ..*fault }));
        }
        _ => {}
    }
    all.retain(|it| it != op);
    all
}

fn simpler_meta(meta: &Meta) -> impl Iterator<Item = Meta> {
    let plain = |thread| Meta {
        agent_name: "orch",
        thread,
        ..Meta::default()
    };
    // What is plain already has nothing that is simpler.
    let simpler = [plain(None), plain(meta.thread)];
    let known = simpler.iter().position(|it| it == meta);
    simpler.into_iter().take(known.unwrap_or(2))
}

fn simpler_around(around: &Around) -> impl Iterator<Item = Around> {
    let with = |change: fn(&mut Around)| {
        let mut simpler = around.clone();
        change(&mut simpler);
        simpler
    };
    [
        with(|it| it.usage = None),
        with(|it| it.request = None),
        with(|it| it.tools = None),
        with(|it| it.compaction = None),
        with(|it| it.partial = None),
    ]
    .into_iter()
}

/// Without one of the edits, or with a simpler row.
fn simpler_next(next: &Next) -> impl Iterator<Item = Next> {
    let edited = |edits: Vec<Edit>| Next {
        keep: next.keep,
        edits,
    };
    (0..next.edits.len()).flat_map(move |index| {
        let mut without = next.edits.clone();
        let removed = without.remove(index);
        let rows: Vec<_> = match removed {
            Edit::New(row) => simpler_row(&row).collect(),
            _ => Vec::new(),
        };
        let simpler = rows.into_iter().map(move |row| {
            let mut edits = next.edits.clone();
            edits[index] = Edit::New(row);
            edited(edits)
        });
        std::iter::once(edited(without)).chain(simpler)
    })
}

/// Without one of the fields that a row need not have.
fn simpler_row(row: &Row) -> impl Iterator<Item = Row> {
    let fields = row.0.as_object().expect("an object").clone();
    let keys: Vec<_> = fields
        .keys()
        .filter(|key| *key != "role" && *key != "content")
        .cloned()
        .collect();
    keys.into_iter().map(move |key| {
        let mut fields = fields.clone();
        fields.remove(&key);
        Row(Value::Object(fields))
    })
}
