//! Random operations.

use serde_json::json;
use transcript_redb::TruncateCut;

use super::op::{At, Baseline, Edit, Gen, Keep, Next, Op};
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
}

impl Generator {
    pub fn new(seed: u64, world: &World) -> Self {
        let mut rng = Rng::new(seed);
        let (sessions, stems) = (world.sessions.len(), world.stems.len());
        let hot_sessions = (0..rng.within(1..5)).map(|_| rng.below(sessions)).collect();
        let hot_stems = (0..rng.within(1..3)).map(|_| rng.below(stems)).collect();
        let burst = rng.weighted(&[(5, 3), (2, 8), (1, 40)]);
        Self {
            rng,
            hot_sessions,
            hot_stems,
            sessions,
            stems,
            burst,
        }
    }

    pub fn op(&mut self) -> Op {
        match self.rng.below(1000) {
            0..390 => self.turn(),
            390..490 => Op::Append {
                at: self.at(),
                seed: meta(&mut self.rng),
                row: row(&mut self.rng),
            },
            490..540 => Op::Replace {
                at: self.at(),
                seed: meta(&mut self.rng),
                next: self.next(),
            },
            540..560 => Op::Clear { at: self.at() },
            560..600 => Op::Open {
                at: self.at(),
                seed: meta(&mut self.rng),
                slot: self.rng.below(SLOTS),
            },
            600..680 => Op::Begin {
                session: self.session(),
                generation: self.generation_to_begin(),
                baseline: self.rng.percent(40).then(|| self.baseline()),
                seed: meta(&mut self.rng),
                slot: self.rng.below(SLOTS),
            },
            680..730 => Op::Drop {
                slot: self.rng.below(SLOTS),
            },
            730..770 => Op::Truncate {
                session: self.session(),
                generation: self.generation(),
                cut: self.cut(),
                seed: meta(&mut self.rng),
            },
            770..840 => self.background(),
            840..870 => Op::Partial {
                thread: *self.rng.pick(&THREADS),
                agent: self.rng.percent(30).then(|| *self.rng.pick(&AGENTS)),
                partial: partial(&mut self.rng),
                request: request(&mut self.rng),
            },
            870..885 => Op::Release {
                session: self.session(),
            },
            885..925 => Op::Head {
                session: self.session(),
                token: self.rng.below(SLOTS),
            },
            925..975 => Op::AppendRows {
                token: self.rng.below(SLOTS),
                rows: (0..self.rng.below(4)).map(|_| row(&mut self.rng)).collect(),
                meta: self.rng.percent(40).then(|| meta(&mut self.rng)),
                around: around(&mut self.rng),
            },
            975..980 => Op::Reopen,
            _ => Op::Wait(*self.rng.pick(&[0, 1, 59, 3_599, 3_600, 90_000])),
        }
    }

    fn turn(&mut self) -> Op {
        Op::Turn {
            at: self.at(),
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
            provenance: metadata(&mut self.rng),
            expected: self.rng.percent(30).then(|| *self.rng.pick(&[0, 1, 2])),
        }
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
            0..72 => At::Session(self.session(), self.generation()),
            72..84 => At::Stem(*self.rng.pick(&self.hot_stems)),
            84..90 => At::Stem(self.rng.below(self.stems)),
            _ => At::Slot(self.rng.below(SLOTS)),
        }
    }

    fn generation(&mut self) -> Gen {
        match self.rng.below(100) {
            0..80 => Gen::Head,
            80..88 => Gen::Next,
            88..98 => Gen::Number(*self.rng.pick(&[0, 1, 2, 3])),
            _ => Gen::Number(*self.rng.pick(&[4096, 4097, u32::MAX])),
        }
    }

    fn generation_to_begin(&mut self) -> Gen {
        if self.rng.percent(85) {
            Gen::Head
        } else {
            self.generation()
        }
    }

    fn baseline(&mut self) -> Baseline {
        match self.rng.below(100) {
            0..75 => Baseline::Current,
            75..85 => Baseline::Encoded,
            85..88 => Baseline::Empty,
            88..92 => Baseline::Shorter,
            92..95 => Baseline::Longer(row(&mut self.rng)),
            _ => Baseline::Patched(self.rng.below(50), patch(&mut self.rng)),
        }
    }

    fn next(&mut self) -> Next {
        match self.rng.below(100) {
            0..50 => Next {
                keep: if self.rng.percent(85) {
                    Keep::All
                } else {
                    Keep::AllEncoded
                },
                edits: self.new_rows(),
            },
            50..60 => Next {
                keep: Keep::First(self.rng.below(30)),
                edits: self.new_rows(),
            },
            // A summary, and some of what there was, mostly in its order.
            60..85 => {
                let mut edits = vec![Edit::New(row(&mut self.rng))];
                let skipped = self.rng.pick(&[10, 40, 70]);
                let (first, last) = (self.rng.below(10), self.rng.below(40));
                for index in first..last {
                    if !self.rng.percent(*skipped) {
                        let edit = self.edit(index);
                        edits.push(edit);
                    }
                }
                edits.extend(self.new_rows());
                if self.rng.percent(15) {
                    let (a, b) = (self.rng.below(edits.len()), self.rng.below(edits.len()));
                    edits.swap(a, b);
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
