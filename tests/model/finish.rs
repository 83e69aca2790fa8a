//! What is checked at the end of a sequence and after all that a store must survive: everything that was compared on the
//! way, the records as they lie in the log, the lists, every way to sum spend, and that all of it can be exported and
//! imported.

use super::diff::Checked;
use super::pair::Pair;
use super::place::Medium;
use super::rng::Rng;

impl Pair {
    /// Compares everything.
    pub fn check_all(&mut self) -> Checked {
        // The same choices, however a sequence was shortened.
        let rng = std::mem::replace(&mut self.rng, Rng::new(self.seed));
        self.compare_all()?;
        for base in self.written_bases() {
            self.check_records(&base)?;
        }
        self.check_sessions()?;
        self.check_threads()?;
        self.check_spend()?;
        self.rng = rng;
        Ok(())
    }

    /// Compares everything at the end, and once more after the process has ended and another has closed the store.
    pub fn finish(&mut self) -> Checked {
        self.check_all()?;
        if !matches!(self.medium, Medium::Memory) {
            self.fault = None;
            self.kill();
            self.reopen()?;
            self.check_all()?;
        }
        self.check_native()
    }
}
