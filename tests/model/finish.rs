//! What is checked at the end of a sequence.

use super::diff::Checked;
use super::pair::Pair;

impl Pair {
    /// Compares everything.
    pub fn finish(&mut self) -> Checked {
        self.compare_all()
    }
}
