//! How often this crate syncs, and how much it writes, by a backend that counts.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use transcript_redb::{Backend, Store, StoreFile};

use crate::measure::round;
use crate::ours::{Rows, Turns, preload};
use crate::peer::{Peer, Result};
use crate::work::{TURNS_OF_A_SESSION, Turn};

#[derive(Clone, Debug)]
struct Counted {
    file: Arc<File>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    syncs: AtomicU64,
    bytes: AtomicU64,
}

impl Backend for Counted {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        self.counts.bytes.fetch_add(len, Ordering::Relaxed);
        self.file.write_all_at(data, offset)
    }
}

/// Syncs and bytes a turn, for `append_turn` and for `append_rows`.
pub fn per_turn(
    folder: &Path,
    turns: &[Turn],
    threads: usize,
    sessions_of_a_thread: usize,
) -> Result<[(f64, f64); 2]> {
    let counts = Arc::new(Counts::default());
    let create = |name: &str| -> Result<Counted> {
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create_new(true);
        Ok(Counted {
            file: Arc::new(open.open(folder.join(name))?),
            counts: Arc::clone(&counts),
        })
    };
    let database = create("counted.redb")?;
    let journal = create("counted.redb-journal")?;
    let store = Store::builder().with_backend(move |file| {
        let opened = match file {
            StoreFile::Journal => &journal,
            _ => &database,
        };
        Ok(Box::new(opened.clone()) as Box<dyn Backend>)
    })?;
    let store = preload(&store, turns, threads * sessions_of_a_thread)?;

    let count = |peer: &dyn Peer| -> Result<(f64, f64)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let before = (load(&counts.syncs), load(&counts.bytes));
        round(peer, turns, threads, sessions_of_a_thread)?;
        let written = (threads * sessions_of_a_thread * TURNS_OF_A_SESSION) as f64;
        Ok((
            (load(&counts.syncs) - before.0) as f64 / written,
            (load(&counts.bytes) - before.1) as f64 / written,
        ))
    };
    Ok([count(&Turns(store.clone()))?, count(&Rows(store))?])
}
