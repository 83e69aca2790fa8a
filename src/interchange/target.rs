//! Where exports go: one stream, or new files in a folder.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::write::Target;
use crate::{Error, Result};

/// Everything goes into one stream. What begins a file there begins on a line of its own.
pub struct OneFile<W> {
    out: W,
    /// The last byte that was written, if any was.
    last: Option<u8>,
}

impl<W: Write> OneFile<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, last: None }
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W> fmt::Debug for OneFile<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneFile").finish_non_exhaustive()
    }
}

impl<W: Write> Write for OneFile<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        let last = bytes.get(..written).and_then(<[u8]>::last);
        self.last = last.copied().or(self.last);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Target for OneFile<W> {
    fn file(&mut self, _: &str) -> Result<&mut dyn Write> {
        if self.last.is_some_and(|last| last != b'\n') {
            self.write_all(b"\n").map_err(writing)?;
        }
        Ok(self)
    }

    fn is_one_file(&self) -> bool {
        true
    }
}

/// Each file is a new one in a folder, private to its owner. Nothing that is there already is overwritten.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    open: Option<BufWriter<File>>,
    /// The file that is open.
    current: Option<PathBuf>,
    files: HashSet<PathBuf>,
}

impl Folder {
    /// Writes into the folder at `path`, which is made when the first file is.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            open: None,
            current: None,
            files: HashSet::new(),
        }
    }

    /// Completes the last file, and names all, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        self.complete()?;
        let mut files: Vec<_> = self.files.into_iter().collect();
        files.sort_unstable();
        Ok(files)
    }

    fn complete(&mut self) -> Result<()> {
        match self.open.take() {
            Some(mut open) => open.flush().map_err(writing),
            None => Ok(()),
        }
    }
}

impl Target for Folder {
    fn file(&mut self, name: &str) -> Result<&mut dyn Write> {
        let parts = Path::new(name);
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if name.is_empty() || !parts.components().all(plain) || name.contains(['\\', ':']) {
            return Err(Error::InvalidId {
                what: "name of a file",
                reason: "it is not made of plain parts; export to one file instead".to_owned(),
            });
        }
        let path = self.path.join(parts);
        if self.current.as_ref() != Some(&path) {
            self.complete()?;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None if self.files.contains(&path) => BufWriter::new(go_on(&path)?),
            None => {
                let file = create(&path)?;
                self.files.insert(path.clone());
                BufWriter::new(file)
            }
        };
        self.current = Some(path);
        Ok(self.open.insert(open))
    }
}

/// Opens a file again that this export began.
fn go_on(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).open(path).map_err(writing)
}

/// Makes a new file, private to its owner, and the folder that it is in.
fn create(path: &Path) -> Result<File> {
    let what = |error| Error::Io {
        what: format!("creating {}", path.display()),
        source: Arc::new(error),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(what)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(what)
}

/// What a target that cannot be written answers.
pub(super) fn writing(error: io::Error) -> Error {
    Error::Io {
        what: "writing an export".to_owned(),
        source: Arc::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_one_stream_begins_on_lines_of_its_own() {
        let mut target = OneFile::new(Vec::new());
        for text in ["a", "b\n", "", "c"] {
            target
                .file("x")
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        }
        assert_eq!(target.into_inner(), b"a\nb\nc");
    }

    #[test]
    fn a_folder_takes_plain_names_only_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut target = Folder::new(folder.path().join("new"));
        target
            .file("a/b.jsonl")
            .unwrap()
            .write_all(b"text")
            .unwrap();
        for name in ["", "../x", "/x", "a/../../x", "a\\x", "c:x"] {
            assert!(target.file(name).is_err(), "{name}");
        }
        target.file("c").unwrap().write_all(b"other").unwrap();
        let again = target.file("a/b.jsonl").unwrap();
        again.write_all(b", and more").unwrap();
        let files = target.finish().unwrap();
        assert_eq!(fs::read(&files[0]).unwrap(), b"text, and more");
        assert_eq!(fs::read(&files[1]).unwrap(), b"other");
        let mut second = Folder::new(folder.path().join("new"));
        assert!(second.file("c").is_err());
        assert_eq!(fs::read(&files[1]).unwrap(), b"other");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
