//! Random operations.

use serde_json::json;
use transcript_redb::TruncateCut;

use super::op::{At, Baseline, Edit, Gen, Json, Keep, Next, Op};
use super::place::Fault;
use super::rng::Rng;
use super::values::{KEYS, around, meta, metadata, partial, patch, request, row};
use super::world::{AGENTS, THREADS, World};

/// How many handles and how many tokens a sequence keeps.
pub const SLOTS: usize = 4;

pub struct Generator {
    rng: Rng,
    /// The sessions and stems that this sequence is mostly about.
    hot_sessions: Vec<usize>,
    hot_stems: Vec<usize>,
    sessions: usize,
    stems: usize,
    /// Rows that a turn adds at most.
    burst: usize,
    /// What comes next, last first.
    script: Vec<Op>,
    clock_steps_back: bool,
    /// Whether there is a disk that can fail.
    on_disk: bool,
}

impl Generator {
    pub fn new(seed: u64, world: &World, on_disk: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (sessions, stems) = (world.sessions.len(), world.stems.len());
        let hot_sessions = (0..rng.within(1..4)).map(|_| rng.below(sessions)).collect();
        let hot_stems = (0..rng.within(1..3)).map(|_| rng.below(stems)).collect();
        let burst = rng.weighted(&[(4, 4), (3, 12), (2, 40)]);
        let clock_steps_back = rng.percent(15);
        Self {
            rng,
            hot_sessions,
            hot_stems,
            sessions,
            stems,
            burst,
            script: Vec::new(),
            clock_steps_back,
            on_disk,
        }
    }

    pub fn op(&mut self) -> Op {
        if let Some(op) = self.script.pop() {
            return op;
        }
        if self.on_disk && self.rng.percent(12) {
            return self.disk_op();
        }
        match self.rng.below(1000) {
            0..390 => self.turn(),
            390..470 => {
                let at = self.at();
                self.append(at)
            }
            470..480 => {
                self.contend();
                self.op()
            }
            480..530 => {
                let at = self.at();
                self.replace(at)
            }
            530..555 => Op::Clear { at: self.at() },
            555..590 => Op::Open {
                at: self.at(),
                seed: meta(&mut self.rng),
                slot: self.rng.below(SLOTS),
            },
            590..655 => self.begin(),
            655..715 => Op::Drop {
                slot: self.rng.below(SLOTS),
            },
            715..765 => Op::Truncate {
                session: self.session(),
                generation: self.generation(),
                cut: self.cut(),
                seed: meta(&mut self.rng),
                slot: self.maybe_slot(),
            },
            765..840 => self.background(),
            840..870 => Op::Partial {
                thread: self.rng.pick::<&str>(&THREADS),
                agent: self.rng.percent(30).then(|| *self.rng.pick(&AGENTS)),
                partial: partial(&mut self.rng),
                request: request(&mut self.rng),
            },
            870..890 => Op::Release {
                session: self.session(),
            },
            890..925 => {
                let token = self.rng.below(SLOTS);
                if self.rng.percent(60) {
                    let append = self.append_rows(token);
                    self.script.push(append);
                }
                Op::Head {
                    session: self.session(),
                    token,
                }
            }
            925..970 => {
                let token = self.rng.below(SLOTS);
                self.append_rows(token)
            }
            970..980 if self.clock_steps_back => {
                self.script.push(Op::Reopen);
                Op::Wait(-90_000)
            }
            970..980 => Op::Reopen,
            _ if self.clock_steps_back => Op::Wait(*self.rng.pick(&[-1, -60, 3_600, -7_200])),
            _ => Op::Wait(*self.rng.pick(&[0, 1, 59, 3_599, 3_600, 90_000])),
        }
    }

    /// What happens to a store on a disk.
    fn disk_op(&mut self) -> Op {
        match self.rng.below(100) {
            0..20 => Op::Checkpoint,
            20..30 => Op::Kill,
            30..42 => Op::PowerCut(self.rng.next() >> 40),
            _ => {
                let struck = match self.rng.below(100) {
                    0..20 => Some(Op::Checkpoint),
                    20..30 => Some(Op::Reopen),
                    30..38 => Some(Op::Look { at: self.at() }),
                    _ => None,
                };
                self.script.extend(struck);
                Op::Strike(Fault::random(&mut self.rng))
            }
        }
    }

    fn begin(&mut self) -> Op {
        let slot = self.rng.below(SLOTS);
        if self.rng.percent(60) {
            let write = match self.rng.below(4) {
                0 => self.append(At::Slot(slot)),
                1 => self.replace(At::Slot(slot)),
                _ => self.turn_at(At::Slot(slot)),
            };
            self.script.push(write);
        }
        Op::Begin {
            session: self.session(),
            generation: self.generation_to_begin(),
            baseline: self.rng.percent(40).then(|| self.baseline()),
            seed: meta(&mut self.rng),
            slot,
        }
    }

    /// A begun generation whose slot is freed and taken by another before its handle writes.
    fn contend(&mut self) {
        let session = self.session();
        let slot = self.rng.below(SLOTS);
        let begin = |generator: &mut Self, slot| Op::Begin {
            session,
            generation: Gen::Head,
            baseline: generator.rng.percent(30).then_some(Baseline::Current),
            seed: meta(&mut generator.rng),
            slot,
        };
        let mut script = vec![begin(self, slot)];
        script.push(match self.rng.below(3) {
            0 => Op::Release { session },
            _ => Op::Clear { at: At::Slot(slot) },
        });
        match self.rng.below(3) {
            0 => script.push(self.append(At::Session(session, Gen::Head))),
            1 => script.push(begin(self, (slot + 1) % SLOTS)),
            _ => script.push(self.append(At::Session(session, Gen::Next))),
        }
        let at = At::Slot(slot);
        script.push(if self.rng.percent(50) {
            self.append(at)
        } else {
            self.turn_at(at)
        });
        script.reverse();
        self.script = script;
    }

    fn append(&mut self, at: At) -> Op {
        Op::Append {
            at,
            seed: meta(&mut self.rng),
            row: row(&mut self.rng),
        }
    }

    fn append_rows(&mut self, token: usize) -> Op {
        Op::AppendRows {
            token,
            rows: (0..self.rng.below(4)).map(|_| row(&mut self.rng)).collect(),
            meta: self.rng.percent(40).then(|| meta(&mut self.rng)),
            around: around(&mut self.rng),
        }
    }

    fn replace(&mut self, at: At) -> Op {
        Op::Replace {
            at,
            seed: meta(&mut self.rng),
            next: self.next(),
        }
    }

    fn turn(&mut self) -> Op {
        let at = self.at();
        self.turn_at(at)
    }

    fn turn_at(&mut self, at: At) -> Op {
        Op::Turn {
            at,
            prev: self.baseline(),
            next: self.next(),
            meta: meta(&mut self.rng),
            around: around(&mut self.rng),
        }
    }

    fn background(&mut self) -> Op {
        let mut row = row(&mut self.rng);
        if self.rng.percent(85) {
            // Mostly one that is accepted.
            row.0 = json!({
                "role": "assistant",
                "content": row.0["content"],
                "extra_metadata": self.rng.percent(20).then(|| metadata(&mut self.rng)),
                "turn_usage": self.rng.percent(30).then(|| super::values::usage(&mut self.rng).0),
                "request_id": request(&mut self.rng),
                "preserve_request_id": self.rng.percent(50),
            });
        }
        Op::Background {
            session: self.session(),
            generation: self.generation(),
            row,
            key: self
                .rng
                .weighted(&[(6, KEYS[0]), (4, KEYS[1]), (2, KEYS[2]), (1, " ")]),
            provenance: Json(metadata(&mut self.rng)),
            expected: self.rng.percent(30).then(|| *self.rng.pick(&[0, 1, 2])),
        }
    }

    fn maybe_slot(&mut self) -> Option<usize> {
        let slot = self.rng.below(SLOTS);
        self.rng.percent(40).then_some(slot)
    }

    fn session(&mut self) -> usize {
        if self.rng.percent(80) {
            *self.rng.pick(&self.hot_sessions)
        } else {
            self.rng.below(self.sessions)
        }
    }

    fn at(&mut self) -> At {
        match self.rng.below(100) {
            0..76 => At::Session(self.session(), self.generation()),
            76..84 => At::Stem(*self.rng.pick(&self.hot_stems)),
            84..88 => At::Stem(self.rng.below(self.stems)),
            _ => At::Slot(self.rng.below(SLOTS)),
        }
    }

    fn generation(&mut self) -> Gen {
        match self.rng.below(100) {
            0..88 => Gen::Head,
            88..93 => Gen::Next,
            93..99 => Gen::Number(*self.rng.pick(&[0, 1, 2, 3])),
            _ => Gen::Number(*self.rng.pick(&[4096, 4097, u32::MAX])),
        }
    }

    fn generation_to_begin(&mut self) -> Gen {
        match self.rng.below(100) {
            0..85 => Gen::Head,
            85..88 => Gen::Number(4096),
            _ => self.generation(),
        }
    }

    fn baseline(&mut self) -> Baseline {
        match self.rng.below(100) {
            0..78 => Baseline::Current,
            78..86 => Baseline::Encoded,
            86..90 => Baseline::Recoded,
            90..92 => Baseline::Empty,
            92..94 => Baseline::Shorter,
            94..96 => Baseline::Longer(row(&mut self.rng)),
            _ => Baseline::Patched(self.rng.below(50), patch(&mut self.rng)),
        }
    }

    fn next(&mut self) -> Next {
        match self.rng.below(100) {
            0..50 => Next {
                keep: self.rng.weighted(&[
                    (17, Keep::All),
                    (2, Keep::AllEncoded),
                    (1, Keep::AllRecoded),
                ]),
                edits: self.new_rows(),
            },
            50..60 => Next {
                keep: Keep::First(self.rng.below(30)),
                edits: self.new_rows(),
            },
            // A summary, and some of what there was, mostly in its order.
            60..82 => {
                let mut edits = vec![Edit::New(row(&mut self.rng))];
                let skipped = *self.rng.pick(&[5, 20, 60]);
                let (first, last) = (self.rng.below(8), self.rng.below(60));
                for index in first..last {
                    if !self.rng.percent(skipped) {
                        let edit = self.edit(index);
                        edits.push(edit);
                    }
                }
                edits.extend(self.new_rows());
                for _ in 0..*self.rng.pick(&[0, 0, 1, 3]) {
                    let (a, b) = (self.rng.below(edits.len()), self.rng.below(edits.len()));
                    edits.swap(a, b);
                }
                Next {
                    keep: Keep::Nothing,
                    edits,
                }
            }
            // Every second row.
            82..90 => Next {
                keep: Keep::Nothing,
                edits: (0..60).step_by(2).map(Edit::Kept).collect(),
            },
            // All of it, but for a few changes.
            90..96 => {
                let mut edits: Vec<_> = (0..60).map(Edit::Kept).collect();
                for _ in 0..self.rng.within(1..4) {
                    let index = self.rng.below(12);
                    edits[index] = Edit::Patched(index, patch(&mut self.rng));
                }
                Next {
                    keep: Keep::Nothing,
                    edits,
                }
            }
            _ => Next {
                keep: Keep::Nothing,
                edits: (0..self.rng.below(6))
                    .map(|_| {
                        let index = self.rng.below(12);
                        self.edit(index)
                    })
                    .collect(),
            },
        }
    }

    fn edit(&mut self, index: usize) -> Edit {
        match self.rng.below(100) {
            0..78 => Edit::Kept(index),
            78..84 => Edit::Copied(index),
            84..95 => Edit::Patched(index, patch(&mut self.rng)),
            _ => Edit::New(row(&mut self.rng)),
        }
    }

    fn new_rows(&mut self) -> Vec<Edit> {
        let most = if self.rng.percent(20) { self.burst } else { 3 };
        (0..self.rng.below(most + 1))
            .map(|_| Edit::New(row(&mut self.rng)))
            .collect()
    }

    fn cut(&mut self) -> TruncateCut {
        match self.rng.below(3) {
            0 => TruncateCut::BeforeIndex(*self.rng.pick(&[0, 1, 2, 5, 20, usize::MAX])),
            1 => TruncateCut::BeforeMessageId((*self.rng.pick(&["m1", "m2", "m9"])).to_owned()),
            _ => TruncateCut::LastAssistantTurn,
        }
    }
}
