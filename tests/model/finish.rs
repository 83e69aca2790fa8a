//! What is checked at the end of a sequence: everything that was compared on the way, the records as they lie in the
//! log, the lists, every way to sum spend, and that all of it can be exported and imported.

use super::diff::Checked;
use super::pair::Pair;
use super::rng::Rng;

impl Pair {
    /// Compares everything.
    pub fn finish(&mut self) -> Checked {
        // The same choices, however a sequence was shortened.
        self.rng = Rng::new(self.seed);
        self.compare_all()?;
        for base in self.written_bases() {
            self.check_records(&base)?;
        }
        self.check_sessions()?;
        self.check_threads()?;
        self.check_spend()?;
        self.check_native()
    }
}
