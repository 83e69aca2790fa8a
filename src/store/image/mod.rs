//! An image: all that a store holds of some sessions, as a stream of entries that depend on no store.
//!
//! [`Store::image`] takes one from a snapshot; a `Restore` (see `import::restore`) puts it into a store. Entries are
//! values; how they are written is a matter of codecs.

pub(crate) mod entry;

pub(crate) use entry::Entry;

use super::Store;
use crate::Result;
use crate::turn::check_stem;

/// What to export.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ExportScope<'a> {
    /// The whole store.
    All,
    /// The root sessions of a thread, with all generations and all sub-agents.
    Thread(&'a str),
    /// The sessions with these stems, with all generations and all sub-agents below them. The stem of any generation
    /// names a session.
    Sessions(&'a [&'a str]),
}

impl Store {
    /// Hands the image of a part of the store to `sink`, entry by entry, all of one snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::NotWritten`](crate::Error::NotWritten) if a session that was named is not written; what `sink` answers.
    pub(crate) fn image(
        &self,
        scope: ExportScope<'_>,
        sink: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        if let ExportScope::Sessions(stems) = scope {
            for stem in stems {
                check_stem(stem)?;
            }
        }
        self.engine.read(|reader| reader.image(scope, sink))
    }
}
