//! Folders to write in, what they occupy, and how to make the system forget their content.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::Result;

/// A new folder that goes with its guard.
pub fn scratch(folder: &Path) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(folder)?)
}

fn each_file(folder: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_file(&path, act)?;
        } else {
            act(&path)?;
        }
    }
    Ok(())
}

/// Bytes of the blocks that the files below a folder occupy on the disk.
pub fn allocated(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    each_file(folder, &mut |path| {
        // A block of this count is 512 bytes whatever the file system.
        bytes += fs::metadata(path)?.blocks() * 512;
        Ok(())
    })?;
    Ok(bytes)
}

/// Makes the system drop its cached pages of all files below a folder. They must be closed, or what is dirty stays.
pub fn drop_cached(folder: &Path) -> Result<()> {
    each_file(folder, &mut |path| {
        let file = File::open(path)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

/// Bytes that this process made the system fetch from disks so far; where the system says so.
pub fn fetched() -> Option<u64> {
    of_process("read_bytes: ")
}

/// Bytes that this process handed to the system to write so far; where the system says so.
pub fn written() -> Option<u64> {
    of_process("wchar: ")
}

fn of_process(name: &str) -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// Bytes of memory that this process occupies; where the system says so.
pub fn resident() -> Option<u64> {
    of_status("VmRSS:")
}

/// The most bytes of memory that this process has occupied; where the system says so.
pub fn peak_resident() -> Option<u64> {
    of_status("VmHWM:")
}

fn of_status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
