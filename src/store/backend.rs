//! The bytes under the store: a small trait of our own, the file that implements it, and the adapter to redb.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Which of a store's files a backend stands for.
#[cfg(feature = "testkit")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreFile {
    /// The redb database.
    Database,
    /// The journal beside it.
    Journal,
}

/// Random-access bytes with an explicit sync, as a store needs them.
///
/// Implementations stand in for a file in tests: they count, fail, tear or forget. A written byte must be readable at
/// once by the same process; it must survive a power loss after the next successful [`sync_data`](Self::sync_data).
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Current length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` from `offset`. Reading beyond the end is an error.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Cuts or extends to `len`; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes all bytes written before durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
}

impl Backend for Box<dyn Backend> {
    fn len(&self) -> io::Result<u64> {
        self.as_ref().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.as_ref().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.as_ref().set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.as_ref().sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.as_ref().write(offset, data)
    }
}

/// A file. The handle is shared, so that a lock on it outlives one opening of the database.
#[derive(Clone, Debug)]
pub(super) struct FileBackend(Arc<File>);

impl FileBackend {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self(file)
    }
}

impl Backend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    #[cfg(unix)]
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&*self.0, out, offset)
    }

    #[cfg(windows)]
    fn read(&self, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt as _;
        while !out.is_empty() {
            let count = self.0.seek_read(out, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out = out.get_mut(count..).unwrap_or_default();
            offset += count as u64;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    #[cfg(unix)]
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&*self.0, data, offset)
    }

    #[cfg(windows)]
    fn write(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt as _;
        while !data.is_empty() {
            let count = self.0.seek_write(data, offset)?;
            data = data.get(count..).unwrap_or_default();
            offset += count as u64;
        }
        Ok(())
    }
}

/// Bytes in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryBackend(redb::backends::InMemoryBackend);

impl Backend for MemoryBackend {
    fn len(&self) -> io::Result<u64> {
        redb::StorageBackend::len(&self.0)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        redb::StorageBackend::read(&self.0, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        redb::StorageBackend::set_len(&self.0, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        redb::StorageBackend::write(&self.0, offset, data)
    }
}

/// Any backend as redb's.
#[derive(Debug)]
pub(super) struct RedbBackend<B>(pub(super) B);

impl<B: Backend> redb::StorageBackend for RedbBackend<B> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// A view of a backend whose writes stay in memory: redb repairs and marks a file when it opens it, and a file that
/// turns out not to be ours must be left byte for byte.
#[derive(Debug)]
pub(super) struct Overlay<B> {
    under: B,
    state: Mutex<OverlayState>,
}

#[derive(Debug)]
struct OverlayState {
    len: u64,
    /// Bytes of `under` from here on were cut off and read as zero.
    cut: u64,
    pages: BTreeMap<u64, Box<[u8; OVERLAY_PAGE]>>,
}

const OVERLAY_PAGE: usize = 4096;

impl<B: Backend> Overlay<B> {
    pub(super) fn new(under: B) -> io::Result<Self> {
        let len = under.len()?;
        Ok(Self {
            under,
            state: Mutex::new(OverlayState {
                len,
                cut: len,
                pages: BTreeMap::new(),
            }),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, OverlayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page as it was before the overlay's writes.
    fn under_page(&self, page: u64, cut: u64) -> io::Result<Box<[u8; OVERLAY_PAGE]>> {
        let mut bytes = Box::new([0; OVERLAY_PAGE]);
        let start = page * OVERLAY_PAGE as u64;
        let available = usize::try_from(cut.saturating_sub(start)).unwrap_or(usize::MAX);
        if let Some(part) = bytes.get_mut(..available.min(OVERLAY_PAGE)) {
            self.under.read(start, part)?;
        }
        Ok(bytes)
    }
}

/// Splits `len` bytes at `offset` into parts that lie in one page: page, place in the page, length.
fn page_parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let place = usize::try_from(at % OVERLAY_PAGE as u64).unwrap_or_default();
        let part = (OVERLAY_PAGE - place).min(len - done);
        done += part;
        (part > 0).then_some((at / OVERLAY_PAGE as u64, place, part))
    })
}

impl<B: Backend> Backend for Overlay<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if offset.saturating_add(out.len() as u64) > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = out;
        for (page, place, part) in page_parts(offset, rest.len()) {
            let (target, behind) = rest.split_at_mut(part);
            if let Some(bytes) = state.pages.get(&page) {
                target.copy_from_slice(bytes.get(place..place + part).unwrap_or_default());
            } else {
                let bytes = self.under_page(page, state.cut)?;
                target.copy_from_slice(bytes.get(place..place + part).unwrap_or_default());
            }
            rest = behind;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if len < state.len {
            state.cut = state.cut.min(len);
            let first_gone = len.div_ceil(OVERLAY_PAGE as u64);
            drop(state.pages.split_off(&first_gone));
            let place = usize::try_from(len % OVERLAY_PAGE as u64).unwrap_or_default();
            if place > 0
                && let Some(bytes) = state.pages.get_mut(&(len / OVERLAY_PAGE as u64))
                && let Some(behind) = bytes.get_mut(place..)
            {
                behind.fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let mut rest = data;
        for (page, place, part) in page_parts(offset, data.len()) {
            let (source, behind) = rest.split_at(part);
            let cut = state.cut;
            let bytes = match state.pages.entry(page) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(self.under_page(page, cut)?)
                }
            };
            if let Some(target) = bytes.get_mut(place..place + part) {
                target.copy_from_slice(source);
            }
            rest = behind;
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_shows_its_writes_and_leaves_the_bytes_below_alone() {
        let file = tempfile::tempfile().unwrap();
        let under = FileBackend::new(Arc::new(file));
        let original: Vec<u8> = (0..10_000u32).map(|n| n.to_le_bytes()[0]).collect();
        under.write(0, &original).unwrap();

        let overlay = Overlay::new(under.clone()).unwrap();
        let mut expected = original.clone();
        overlay.write(4_090, &[0xAA; 20]).unwrap();
        expected[4_090..4_110].fill(0xAA);
        overlay.set_len(9_000).unwrap();
        expected.truncate(9_000);
        overlay.set_len(12_000).unwrap();
        expected.resize(12_000, 0);
        overlay.write(11_990, &[0xBB; 30]).unwrap();
        expected.resize(12_020, 0);
        expected[11_990..].fill(0xBB);

        let mut seen = vec![0; 12_020];
        overlay.read(0, &mut seen).unwrap();
        assert_eq!(seen, expected);
        assert_eq!(overlay.len().unwrap(), 12_020);
        assert!(overlay.read(12_000, &mut [0; 21]).is_err());

        let mut below = vec![0; 10_000];
        under.read(0, &mut below).unwrap();
        assert_eq!(below, original);
    }
}
