//! Output files and folders that appear under their final name only when they are complete.

use crate::error::{Error, ErrorKind, Result, bail};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Maximum number of temporary files or folders for one name, including those that interrupted processes with
/// the same process ID left.
const PARTS_MAX: u32 = 100;

/// A file with a temporary name until it is [committed](Output::commit). Dropping it earlier
/// deletes it and leaves an existing file under the final name unchanged.
#[derive(Debug)]
pub struct Output {
    file: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl Output {
    /// Creates a temporary file in the folder of `path`. `sources` are the input files, which must
    /// not be replaced.
    pub fn create<'a>(path: &Path, mut sources: impl Iterator<Item = &'a Path>) -> Result<Self> {
        let shown = path.display();
        if path.file_name().is_none() {
            bail!(Argument, "{shown}: expected a file name");
        }
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
        let (file, temporary) = new_part(path, |part| File::create_new(part))?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            temporary,
            path: path.to_path_buf(),
            committed: false,
        })
    }

    /// Syncs the file to disk and renames it to its final name.
    pub fn commit(mut self) -> Result<()> {
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
#[derive(Debug)]
pub struct OutputFolder {
    temporary: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl OutputFolder {
    /// Creates a temporary folder next to `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        if path.file_name().is_none() {
            bail!(Argument, "{shown}: expected a folder name");
        }
        if path.exists() {
            bail!(Argument, "{shown}: already exists, expected a new folder");
        }
        let ((), temporary) = new_part(path, |part| std::fs::create_dir(part))?;
        Ok(Self {
            temporary,
            path: path.to_path_buf(),
            committed: false,
        })
    }

    /// Creates a file in the folder, or in a folder inside.
    pub fn file(&self, name: &str) -> Result<FolderFile> {
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
    pub fn text(&self, name: &str, text: &str) -> Result<()> {
        let mut file = self.file(name)?;
        file.write_all(text.as_bytes())?;
        file.end()
    }

    /// Renames the folder to its final name.
    pub fn commit(mut self) -> Result<()> {
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
#[derive(Debug)]
pub struct FolderFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl FolderFile {
    /// Appends bytes.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|e| failed(&self.path, "cannot be written", e))
    }

    /// Syncs the file to disk.
    pub fn end(mut self) -> Result<()> {
        let synced = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|e| failed(&self.path, "cannot be written", e))
    }
}

/// Removes the temporary files of `path` that processes left when they were killed.
pub(crate) fn remove_parts(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let entries = path.parent().and_then(|folder| folder.read_dir().ok());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) && name.ends_with(".part") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Creates the temporary file or folder of `path` under the first name that is free.
fn new_part<T>(path: &Path, create: impl Fn(&Path) -> io::Result<T>) -> Result<(T, PathBuf)> {
    // WebAssembly has no processes.
    let process = if cfg!(target_family = "wasm") {
        0
    } else {
        std::process::id()
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..PARTS_MAX {
        let part = path.with_file_name(format!(".{name}.{process}.{number}.part"));
        match create(&part) {
            Ok(created) => return Ok((created, part)),
            Err(e) => refused = e,
        }
        if refused.kind() != io::ErrorKind::AlreadyExists {
            break;
        }
    }
    Err(failed(path, "cannot be created", refused))
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
            refused.unwrap_err().message().to_string()
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

    #[test]
    fn folder_appears_only_after_commit() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("model");
        let names = || std::fs::read_dir(root.path()).unwrap().count();
        let make = |text: &str| {
            let output = OutputFolder::create(&path).unwrap();
            output.text("config.json", text).unwrap();
            output
        };
        drop(make("never"));
        assert_eq!(names(), 0);

        // Two concurrent outputs: the first commit wins, and the other deletes its own files only.
        let [one, two] = [make("one"), make("two")];
        one.commit().unwrap();
        let refused = two.commit().expect_err("the folder exists");
        assert!(refused.message().contains("cannot be written"), "{refused}");
        let text = std::fs::read_to_string(path.join("config.json"));
        assert_eq!(text.unwrap(), "one");
        assert_eq!(names(), 1);
    }
}
