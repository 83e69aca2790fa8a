//! The chain of parents, and the context that it leads to.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;
use sha2::{Digest, Sha256};

use super::super::fact::RowNo;

/// For a number that stands for nothing.
const NONE: u32 = u32::MAX;

/// An id that a line has, or names as its parent, in a few bytes: files have hundreds of thousands of them.
#[derive(Clone, Copy)]
struct Node {
    name: [u8; 16],
    /// The node of the parent.
    parent: u32,
    /// How many rows the line makes, which are numbered one behind the other; [`NONE`] as long as no line has the id.
    count: u32,
    /// The state of its session, where it has rows or stands behind some.
    session: u32,
    /// Its last row, or that of the nearest line above it that has some.
    row: u32,
}

/// All lines of a file that have ids. Of two with one id the later counts.
#[derive(Default)]
pub(super) struct Chain {
    nodes: Vec<Node>,
    /// Where in `nodes` a name stands.
    by_name: HashTable<u32>,
    hasher: RandomState,
}

/// An id in 128 bits.
fn name(id: &str) -> [u8; 16] {
    let hash: [u8; 32] = Sha256::digest(id).into();
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().zip(hash) {
        *to = from;
    }
    name
}

/// A row in four bytes. There is no file of so many rows that one has none.
fn number(row: Option<RowNo>) -> u32 {
    row.and_then(|row| u32::try_from(row.0).ok())
        .unwrap_or(NONE)
}

fn row(number: u32) -> Option<RowNo> {
    (number != NONE).then(|| RowNo(number.into()))
}

impl Node {
    fn rows(&self) -> impl Iterator<Item = RowNo> + use<> {
        let end = u64::from(self.row) + 1;
        (end.saturating_sub(self.count.into())..end).map(RowNo)
    }
}

impl Chain {
    /// Notes a line without rows.
    pub(super) fn pass(&mut self, id: &str, parent: &str) {
        let parent = self.enter(parent);
        let above = self.nodes.get(parent as usize).copied();
        self.meet(id, |node| {
            node.parent = parent;
            node.count = 0;
            node.session = above.map_or(NONE, |above| above.session);
            node.row = above.map_or(NONE, |above| above.row);
        });
    }

    /// Notes a line with rows.
    pub(super) fn note(&mut self, id: &str, parent: &str, session: usize, rows: &[RowNo]) {
        let parent = self.enter(parent);
        self.meet(id, |node| {
            node.parent = parent;
            node.count = u32::try_from(rows.len()).unwrap_or_default();
            node.session = u32::try_from(session).unwrap_or(NONE);
            node.row = number(rows.last().copied());
        });
    }

    fn meet(&mut self, id: &str, set: impl FnOnce(&mut Node)) {
        let at = self.enter(id);
        if let Some(node) = self.nodes.get_mut(at as usize) {
            set(node);
        }
    }

    /// The node of an id, which may be new.
    fn enter(&mut self, id: &str) -> u32 {
        if id.is_empty() {
            return NONE;
        }
        let name = name(id);
        if let Some(at) = self.find(&name) {
            return at;
        }
        let Self {
            nodes,
            by_name,
            hasher,
        } = self;
        let at = u32::try_from(nodes.len()).unwrap_or(NONE);
        nodes.push(Node {
            name,
            parent: NONE,
            count: NONE,
            session: NONE,
            row: NONE,
        });
        let hash_of = |at: &u32| hasher.hash_one(nodes.get(*at as usize).map(|node| node.name));
        by_name.insert_unique(hasher.hash_one(Some(name)), at, hash_of);
        at
    }

    fn find(&self, name: &[u8; 16]) -> Option<u32> {
        let is_it = |at: &u32| {
            let node = self.nodes.get(*at as usize);
            node.is_some_and(|node| node.name == *name)
        };
        let found = self.by_name.find(self.hasher.hash_one(Some(name)), is_it);
        found.copied()
    }

    fn at(&self, at: u32) -> Option<&Node> {
        self.nodes
            .get(at as usize)
            .filter(|node| node.count != NONE)
    }

    fn get(&self, id: &str) -> Option<&Node> {
        self.at(self.find(&name(id))?)
    }

    /// The last row of a line, or of the nearest one above it that has some.
    pub(super) fn row(&self, id: &str) -> Option<RowNo> {
        row(self.get(id)?.row)
    }

    /// The session of a line.
    pub(super) fn session(&self, id: &str) -> Option<usize> {
        let session = self.get(id)?.session;
        (session != NONE).then_some(session as usize)
    }

    /// The rows of a line.
    pub(super) fn rows(&self, id: &str) -> impl Iterator<Item = RowNo> + use<> {
        self.get(id).map(Node::rows).into_iter().flatten()
    }

    /// The rows of the lines from `tail` up the chain to `head`, in order of the file; none if it does not lead there.
    pub(super) fn stretch(&self, head: &str, tail: &str) -> Vec<RowNo> {
        let (Some(head), Some(mut at)) = (self.find(&name(head)), self.find(&name(tail))) else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        // A chain that bites its tail ends after as many steps as there are lines.
        for _ in 0..self.nodes.len() {
            let Some(node) = self.at(at) else {
                return Vec::new();
            };
            rows.extend(node.rows());
            if at == head {
                rows.sort_unstable();
                rows.dedup();
                return rows;
            }
            at = node.parent;
        }
        Vec::new()
    }
}

/// Going back may cost this many steps for each row of the file, and some to begin with. It costs what the context
/// holds, so a file made for it could ask for the square of its length.
const STEPS_A_ROW: usize = 64;
const FREE_STEPS: usize = 1 << 20;

/// The bit in the parent of an entry that says that it is the result of a call. The last number without it stands for
/// no parent.
const TOOL: u32 = 1 << 31;
const NO_PARENT: u32 = TOOL - 1;

/// The rows of a context, in order.
#[derive(Default)]
pub(super) struct Live {
    rows: Vec<Entry>,
    pushed: usize,
    steps: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    row: u32,
    /// With [`TOOL`] or without.
    parent: u32,
}

impl Entry {
    /// Whether it is the result of a call that is still there where the context goes back to a row.
    fn stays(self, to: u32) -> bool {
        let parent = self.parent & !TOOL;
        self.parent & TOOL != 0 && parent != NO_PARENT && parent <= to
    }
}

impl Live {
    pub(super) fn push(&mut self, row: RowNo, parent: Option<RowNo>, tool: bool) {
        self.rows.push(Entry {
            row: number(Some(row)),
            parent: number(parent).min(NO_PARENT) | if tool { TOOL } else { 0 },
        });
        self.pushed += 1;
    }

    pub(super) fn replace(&mut self, rows: impl Iterator<Item = RowNo>) {
        self.rows.clear();
        for row in rows {
            // What a compaction kept is the ground of all that follows: nothing goes back behind it.
            self.push(row, Some(RowNo(0)), true);
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = RowNo> + '_ {
        self.rows.iter().filter_map(|entry| row(entry.row))
    }

    /// Takes the context back to a row; whether that changed it. Results of calls that remain do so too, as the results
    /// of parallel calls stand on branches of their own. A row that is not in the context takes nothing back.
    pub(super) fn go_back(&mut self, to: RowNo) -> bool {
        let to = number(Some(to));
        if self.rows.last().is_some_and(|last| last.row == to) {
            return false;
        }
        self.steps += self.rows.len();
        if self.steps > FREE_STEPS + STEPS_A_ROW * self.pushed {
            return false;
        }
        let Some(at) = self.rows.iter().rposition(|entry| entry.row == to) else {
            return false;
        };
        let behind = self.rows.split_off(at + 1);
        let before = behind.len();
        let stays = behind.into_iter().filter(|entry| entry.stays(to));
        let kept: Vec<Entry> = stays.collect();
        let changed = kept.len() < before;
        self.rows.extend(kept);
        changed
    }
}
