//! What random sequences leave, out of the store and into another one.

use transcript_redb::{ExportScope, Store, interchange};

use super::diff::{Checked, same};
use super::pair::{Pair, read};
use super::whole::{exported, whole};

impl Pair {
    /// An export makes a store that reads the same and exports the same bytes.
    pub fn check_native(&self) -> Checked {
        let bytes = read("export_native", exported(&self.store, ExportScope::All))?;
        let other = read("in_memory", Store::in_memory())?;
        let codec = interchange::codec("native").expect("there is one");
        for messages in [true, false] {
            let report = read("import", other.import_from("x", &bytes[..], codec))?;
            if !messages {
                same("rows added by a second import", &0, &report.messages)?;
            }
            let shown = read("reads", whole(&self.store))?;
            same("all reads", &shown, &read("reads", whole(&other))?)?;
            let again = read("export_native", exported(&other, ExportScope::All))?;
            let texts = [&bytes, &again].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            same("the bytes of an export", &texts[0], &texts[1])?;
        }
        Ok(())
    }
}
