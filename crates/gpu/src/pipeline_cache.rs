//! File of compiled kernels (pipeline cache) that is reused by later loads.
#![expect(
    unsafe_code,
    reason = "the driver requires that the data is its own pipeline cache data"
)]

use super::device::Device;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tabla_core::exec::Digest;

/// Magic bytes and version of the file. The checksum of the driver's data (little endian) and the
/// data follow.
const MAGIC: [u8; 8] = *b"tablaPC1";
const HEAD_BYTES: usize = 16;
/// Size of the header of the driver's data in bytes (Vulkan specification); it identifies the
/// driver.
const DRIVER_HEAD_BYTES: usize = 32;
/// Maximum size of a file in bytes. Kernels of older versions are never removed from the cache, so
/// a file over the limit is deleted.
const BYTES_MAX: u64 = 64 << 20;

/// The pipeline cache file of a device, and the driver's data in it.
#[derive(Debug)]
pub(super) struct PipelineCacheFile {
    /// `None` if the cache is disabled.
    path: Option<PathBuf>,
    bytes: Vec<u8>,
}

impl PipelineCacheFile {
    /// Reads the file of a device. Without a folder or a file the data is empty; for an invalid
    /// file it is empty too, with a warning.
    pub(super) fn read(device: &Device) -> Self {
        let folder = device.pipeline_cache_path.as_deref();
        let path = folder.map(|folder| folder.join(file_name(device)));
        let bytes = path
            .as_deref()
            .map_or_else(Vec::new, |path| match read(path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "pipeline cache file ignored");
                    Vec::new()
                }
            });
        Self { path, bytes }
    }

    /// Returns the driver's data.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns true if a cache folder is set.
    pub(super) fn enabled(&self) -> bool {
        self.path.is_some()
    }

    /// Writes new data of the driver to the file. A failure is only a warning.
    pub(super) fn replace(&self, bytes: &[u8]) {
        // Data of the same size with the same header has the same kernels, in any order.
        let head = |bytes: &[u8]| {
            bytes
                .iter()
                .take(DRIVER_HEAD_BYTES)
                .copied()
                .collect::<Vec<_>>()
        };
        let same = bytes.len() == self.bytes.len() && head(bytes) == head(&self.bytes);
        let Some(path) = self.path.as_deref().filter(|_| !same) else {
            return;
        };
        if let Err(error) = write(path, bytes) {
            tracing::warn!(path = %path.display(), %error, "pipeline cache file not written");
        }
    }
}

/// Creates wgpu's pipeline cache from the file; `None` if disabled or unsupported.
pub(super) fn create(device: &Device, file: &PipelineCacheFile) -> Option<wgpu::PipelineCache> {
    if !file.enabled()
        || !device
            .wgpu
            .features()
            .contains(wgpu::Features::PIPELINE_CACHE)
    {
        return None;
    }
    let descriptor = wgpu::PipelineCacheDescriptor {
        label: Some("kernels"),
        data: Some(file.bytes()).filter(|bytes| !bytes.is_empty()),
        fallback: true,
    };
    // SAFETY: the data is from a cache of this adapter: the file name has the adapter's ids, and
    // the checksum is valid.
    let created =
        device.with_error_scopes(|| unsafe { device.wgpu.create_pipeline_cache(&descriptor) });
    match created {
        (cache, None) => Some(cache),
        (_, Some(_)) => None,
    }
}

/// Returns the file name of an adapter and replay mode; wgpu's data has a header of its own.
fn file_name(device: &Device) -> String {
    let replay = if device.recorded {
        "recorded"
    } else {
        "encoded"
    };
    let [vendor, id] = device.pci;
    format!(
        "{}-{vendor:04x}-{id:04x}-{replay}.kernels",
        device.profile().backend
    )
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    if !(HEAD_BYTES as u64..=BYTES_MAX).contains(&size) {
        return Err(invalid(format!(
            "file size of {size} bytes, expected {HEAD_BYTES} to {BYTES_MAX}"
        )));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(BYTES_MAX).read_to_end(&mut bytes)?;
    let (head, rest) = bytes.split_at(HEAD_BYTES.min(bytes.len()));
    if head[..MAGIC.len()] != MAGIC {
        return Err(invalid("wrong magic or version".into()));
    }
    if head[MAGIC.len()..] != checksum(rest).to_le_bytes() {
        return Err(invalid("wrong checksum".into()));
    }
    Ok(rest.to_vec())
}

/// Writes the file atomically; deletes it if the data exceeds the limit.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if (HEAD_BYTES + bytes.len()) as u64 > BYTES_MAX {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = Vec::with_capacity(HEAD_BYTES + bytes.len());
    file.extend(MAGIC);
    file.extend(checksum(bytes).to_le_bytes());
    file.extend(bytes);
    // Devices of one process may write at the same time.
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
    let partial = path.with_extension(format!("{process}.{number}.part"));
    let written = fs::write(&partial, file).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // Removes the partial file; the first error is returned.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.add(bytes);
    digest.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_write_at_the_same_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("b.kernels");
        let bytes = vec![7; 1 << 20];
        std::thread::scope(|scope| {
            let write_often = || (0..20).try_for_each(|_| write(&path, &bytes));
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write_often)).collect();
            for writer in writers {
                writer.join().expect("no panic").expect("write");
            }
        });
        assert_eq!(read(&path).expect("read"), bytes);
        let files = fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(files.count(), 1, "no partial files remain");
    }

    #[test]
    fn reads_written_files_and_rejects_corrupt_ones() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a").join("b.kernels");
        assert_eq!(
            read(&path).expect_err("no file").kind(),
            io::ErrorKind::NotFound
        );
        for bytes in [&b""[..], b"data of a driver"] {
            write(&path, bytes).expect("write");
            assert_eq!(read(&path).expect("read"), bytes);
        }
        let whole = fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut corrupt = whole.clone();
            corrupt[at] ^= 4;
            fs::write(&path, corrupt).expect("write");
            let error = read(&path).expect_err("corrupt");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
        }
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).expect("write");
            let error = read(&path).expect_err("truncated");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{end} bytes");
        }
    }
}
