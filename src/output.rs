//! Output files and folders that appear under their final name only when they are complete.

use crate::error::{Error, ErrorKind, Result, bail};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Maximum number of temporary files for one name, including those that interrupted processes with
/// the same process ID left.
const PARTS_MAX: u32 = 100;

/// A file with a temporary name until it is [committed](Output::commit). Dropping it earlier
/// deletes it and leaves an existing file under the final name unchanged.
pub(crate) struct Output {
    file: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl Output {
    /// Creates a temporary file in the folder of `path`. `sources` are the input files, which must
    /// not be replaced.
    pub(crate) fn create<'a>(
        path: &Path,
        mut sources: impl Iterator<Item = &'a Path>,
    ) -> Result<Self> {
        let shown = path.display();
        let Some(name) = path.file_name() else {
            bail!(Argument, "{shown}: expected a file name");
        };
        if path.is_dir() {
            bail!(Argument, "{shown}: is a directory, expected a file name");
        }
        // Replace the target of a link, not the link. Never replace a device or a pipe.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if path.metadata().is_ok_and(|m| !m.is_file()) {
            bail!(Argument, "{shown}: not a regular file");
        }
        let same = |a: &Path| {
            a.canonicalize()
                .is_ok_and(|a| path.canonicalize().is_ok_and(|b| a == b))
        };
        if sources.any(same) {
            bail!(
                Argument,
                "{shown}: output file is the same as an input file"
            );
        }
        let part = |number| {
            let (name, process) = (name.to_string_lossy(), std::process::id());
            path.with_file_name(format!(".{name}.{process}.{number}.part"))
        };
        let new = new_file((0..PARTS_MAX).map(part));
        let (file, temporary) = new.map_err(|e| failed(path, "cannot be created", e))?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            temporary,
            path: path.to_path_buf(),
            committed: false,
        })
    }

    /// Syncs the file to disk and renames it to its final name.
    pub(crate) fn commit(mut self) -> Result<()> {
        let synced = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        synced
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .map_err(|e| failed(&self.path, "cannot be written", e))?;
        self.committed = true;
        // Sync the folder so that the rename is durable. Some platforms cannot sync folders.
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|f| f.sync_all());
        Ok(())
    }
}

impl Write for &mut Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.committed {
            // Drop cannot return an error.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// A new folder with a temporary name until it is [committed](OutputFolder::commit). Dropping it
/// earlier deletes it.
pub(crate) struct OutputFolder {
    temporary: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl OutputFolder {
    /// Creates a temporary folder next to `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        let Some(name) = path.file_name() else {
            bail!(Argument, "{shown}: expected a folder name");
        };
        if path.exists() {
            bail!(Argument, "{shown}: already exists, expected a new folder");
        }
        let name = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        let temporary = path.with_file_name(name);
        std::fs::create_dir(&temporary).map_err(|e| failed(path, "cannot be created", e))?;
        Ok(Self {
            temporary,
            path: path.to_path_buf(),
            committed: false,
        })
    }

    /// Creates a file in the folder, or in a folder inside.
    pub(crate) fn file(&self, name: &str) -> Result<FolderFile> {
        let (path, temporary) = (self.path.join(name), self.temporary.join(name));
        let parent = temporary.parent().unwrap_or(&self.temporary);
        let created = std::fs::create_dir_all(parent);
        let file = created
            .and_then(|()| File::create_new(&temporary))
            .map_err(|e| failed(&path, "cannot be created", e))?;
        Ok(FolderFile {
            file: BufWriter::with_capacity(1 << 20, file),
            path,
        })
    }

    /// Writes a text file.
    pub(crate) fn text(&self, name: &str, text: &str) -> Result<()> {
        let mut file = self.file(name)?;
        file.write_all(text.as_bytes())?;
        file.end()
    }

    /// Renames the folder to its final name.
    pub(crate) fn commit(mut self) -> Result<()> {
        std::fs::rename(&self.temporary, &self.path)
            .map_err(|e| failed(&self.path, "cannot be written", e))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        if !self.committed {
            // Drop cannot return an error.
            let _ = std::fs::remove_dir_all(&self.temporary);
        }
    }
}

/// A file in an [`OutputFolder`].
pub(crate) struct FolderFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl FolderFile {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|e| failed(&self.path, "cannot be written", e))
    }

    /// Syncs the file to disk.
    pub(crate) fn end(mut self) -> Result<()> {
        let synced = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|e| failed(&self.path, "cannot be written", e))
    }
}

/// Creates the first of these files that does not exist yet.
fn new_file(mut paths: impl Iterator<Item = PathBuf>) -> io::Result<(File, PathBuf)> {
    let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
    while refused.kind() == io::ErrorKind::AlreadyExists
        && let Some(path) = paths.next()
    {
        match File::create_new(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) => refused = e,
        }
    }
    Err(refused)
}

fn failed(path: &Path, what: &str, cause: io::Error) -> Error {
    let path = path.display();
    Error::new(ErrorKind::Io, format_args!("{path}: {what}: {cause}")).caused_by(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_appears_only_after_commit() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path();
        let path = folder.join("model.gguf");
        let names = || std::fs::read_dir(folder).unwrap().count();
        let make = |text: &[u8]| {
            let mut output = Output::create(&path, std::iter::empty()).unwrap();
            (&mut output).write_all(text).unwrap();
            output
        };
        drop(make(b"never"));
        assert_eq!(names(), 0);
        make(b"one").commit().unwrap();
        drop(make(b"two"));
        assert_eq!(
            std::fs::read(&path).unwrap(),
            b"one",
            "uncommitted output changed the file"
        );
        make(b"three").commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(names(), 1);

        // Two concurrent outputs: the last commit wins.
        let both = [make(b"four"), make(b"five")];
        both.into_iter().for_each(|output| output.commit().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"five");
        assert_eq!(names(), 1);

        let refusal = |path: &Path, from: &Path| {
            let refused = Output::create(path, [from].into_iter());
            refused
                .err()
                .expect("create succeeded")
                .message()
                .to_string()
        };
        let other = folder.join("other.gguf");
        assert!(refusal(&path, &folder.join(".").join("model.gguf")).contains("same as an input"));
        assert!(refusal(folder, &other).contains("is a directory"));
        #[cfg(unix)]
        {
            let device = refusal(Path::new("/dev/null"), &other);
            assert!(device.contains("not a regular file"), "{device}");
            let link = folder.join("link.gguf");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            let mut output = Output::create(&link, std::iter::empty()).unwrap();
            (&mut output).write_all(b"four").unwrap();
            output.commit().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"four");
            assert!(link.is_symlink(), "the link was replaced");
            std::fs::remove_file(link).unwrap();
        }
        assert!(refusal(&folder.join("no/model.gguf"), &other).contains("cannot be created"));
    }
}
