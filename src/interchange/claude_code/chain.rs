//! The chain of parents, and the context that it leads to.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::super::fact::RowNo;

/// A line that has an id, in a few bytes: files have hundreds of thousands of them.
#[derive(Clone, Copy)]
struct Node {
    parent: u128,
    /// Its rows; none of a line that makes none.
    first: u64,
    count: u32,
    /// The state of its session, where it has rows or stands behind some.
    session: Option<u32>,
    /// Its last row, or that of the nearest line above it that has some.
    row: Option<RowNo>,
}

/// All lines of a file that have ids. Of two with one id the later counts.
#[derive(Default)]
pub(super) struct Chain {
    nodes: HashMap<u128, Node>,
}

/// An id in 128 bits; 0 for none.
fn name(id: &str) -> u128 {
    if id.is_empty() {
        return 0;
    }
    let hash: [u8; 32] = Sha256::digest(id).into();
    hash.iter()
        .take(16)
        .fold(0, |name, byte| name << 8 | u128::from(*byte))
}

impl Chain {
    /// Notes a line without rows.
    pub(super) fn pass(&mut self, id: &str, parent: &str) {
        if id.is_empty() {
            return;
        }
        let parent = name(parent);
        let above = self.nodes.get(&parent).copied();
        let node = Node {
            parent,
            first: 0,
            count: 0,
            session: above.and_then(|above| above.session),
            row: above.and_then(|above| above.row),
        };
        self.nodes.insert(name(id), node);
    }

    /// Notes a line with rows.
    pub(super) fn note(&mut self, id: &str, parent: &str, session: usize, rows: &[RowNo]) {
        if id.is_empty() {
            return;
        }
        let node = Node {
            parent: name(parent),
            first: rows.first().map_or(0, |row| row.0),
            count: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            session: u32::try_from(session).ok(),
            row: rows.last().copied(),
        };
        self.nodes.insert(name(id), node);
    }

    fn get(&self, id: &str) -> Option<&Node> {
        self.nodes.get(&name(id))
    }

    /// The last row of a line, or of the nearest one above it that has some.
    pub(super) fn row(&self, id: &str) -> Option<RowNo> {
        self.get(id)?.row
    }

    /// The session of a line.
    pub(super) fn session(&self, id: &str) -> Option<usize> {
        self.get(id)?.session.map(|session| session as usize)
    }

    /// The rows of a line.
    pub(super) fn rows(&self, id: &str) -> impl Iterator<Item = RowNo> + use<> {
        let rows = self
            .get(id)
            .map_or(0..0, |node| node.first..node.first + u64::from(node.count));
        rows.map(RowNo)
    }

    /// The rows of the lines from `tail` up the chain to `head`, in order of the file; none if it does not lead there.
    pub(super) fn stretch(&self, head: &str, tail: &str) -> Vec<RowNo> {
        let (head, mut at) = (name(head), name(tail));
        let mut rows = Vec::new();
        // A chain that bites its tail ends after as many steps as there are lines.
        for _ in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(&at) else {
                return Vec::new();
            };
            rows.extend((node.first..node.first + u64::from(node.count)).map(RowNo));
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

/// The rows of a context, in order.
#[derive(Default)]
pub(super) struct Live {
    rows: Vec<Entry>,
    pushed: usize,
    steps: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    row: RowNo,
    parent: Option<RowNo>,
    tool: bool,
}

impl Live {
    pub(super) fn push(&mut self, row: RowNo, parent: Option<RowNo>, tool: bool) {
        self.rows.push(Entry { row, parent, tool });
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
        self.rows.iter().map(|entry| entry.row)
    }

    /// Takes the context back to a row; whether that changed it. Results of calls that remain do so too, as the results
    /// of parallel calls stand on branches of their own. A row that is not in the context takes nothing back.
    pub(super) fn go_back(&mut self, to: RowNo) -> bool {
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
        let stays = behind
            .into_iter()
            .filter(|entry| entry.tool && entry.parent.is_some_and(|parent| parent <= to));
        let kept: Vec<Entry> = stays.collect();
        let changed = kept.len() < before;
        self.rows.extend(kept);
        changed
    }
}
