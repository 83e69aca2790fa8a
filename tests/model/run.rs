//! Runs sequences, and shortens those that make the stores disagree.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::diff::{Checked, Divergence};
use super::generate::Generator;
use super::op::Op;
use super::pair::{Outcomes, Pair, Reads};
use super::place::{Pace, Place};
use super::rng::Rng;
use super::shorten::shorten;
use super::world::World;

/// A sequence and where it runs.
#[derive(Debug)]
struct Sequence {
    seed: u64,
    place: Place,
    ops: Vec<Op>,
}

impl Sequence {
    fn of(seed: u64) -> Self {
        let place = Place::of(seed);
        let mut generator = Generator::new(seed, &World::new(), place.is_disk());
        Self {
            seed,
            place,
            ops: (0..length(seed)).map(|_| generator.op()).collect(),
        }
    }
}

/// How many operations the sequence of a seed has.
pub fn length(seed: u64) -> usize {
    Rng::new(seed ^ 0x1E47).weighted(&[(6, 40), (6, 80), (3, 160), (1, 400)])
}

/// Runs the sequence of a seed and answers what happened. Panics with a short sequence if the stores disagree.
pub fn check(seed: u64) -> Outcomes {
    let sequence = Sequence::of(seed);
    let (step, divergence) = match run(&sequence, &sequence.ops, Reads::Sampled) {
        Ok(outcomes) => return outcomes,
        Err(found) => found,
    };
    println!(
        "seed {seed} ({:?}), step {step}: {divergence:?}\nshortening …",
        sequence.place
    );
    // Where a fault strikes may depend on the store's own thread.
    let attempts = if sequence.place.is_disk() { 3 } else { 1 };
    let fails = |ops: &[Op]| {
        let failed = |_| run(&sequence, ops, Reads::AtEnd).err();
        let (steps, divergence) = (0..attempts).find_map(failed)?;
        Some((ops[..steps.min(ops.len())].to_vec(), divergence))
    };
    let all = &sequence.ops[..step.min(sequence.ops.len())];
    // A sequence that fails only on the way stays as long as it is.
    let (ops, divergence) = match fails(all) {
        Some(found) => shorten(found, fails),
        None => (all.to_vec(), divergence),
    };
    let lines: Vec<String> = ops.iter().map(|op| format!("    {op:?},\n")).collect();
    panic!(
        "the stores disagree: TRANSCRIPT_MODEL_SEED={seed} ({:?}), step {step}\n{divergence:?}\n{} operations do it:\n{}",
        sequence.place,
        ops.len(),
        lines.concat()
    );
}

/// Runs a sequence in memory, in a file and on a disk; panics if the stores disagree.
pub fn agree_on(ops: &[Op]) {
    for place in [Place::Memory, Place::File, Place::Disk(Pace::DEFAULT)] {
        let sequence = Sequence {
            seed: 0,
            place,
            ops: ops.to_vec(),
        };
        if let Err((step, divergence)) = run(&sequence, ops, Reads::AtEnd) {
            panic!("the stores disagree at step {step}: {divergence:?}");
        }
    }
}

/// Runs operations on a new pair of stores. An error tells how many of them it took; the checks at the end of a
/// sequence count as one more.
fn run(sequence: &Sequence, ops: &[Op], reads: Reads) -> Result<Outcomes, (usize, Divergence)> {
    let mut pair = Pair::new(sequence.seed, sequence.place, reads);
    for (index, op) in ops.iter().enumerate() {
        caught(|| pair.step(op)).map_err(|found| (index + 1, found))?;
    }
    caught(|| pair.finish()).map_err(|found| (ops.len() + 1, found))?;
    Ok(pair.outcomes)
}

/// A panic of a store is a disagreement too.
fn caught(step: impl FnOnce() -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("of unknown text");
        Err(Divergence(format!("a panic: {text}")))
    })
}
