//! Compiled kernels that are kept from one load to the next, where the back end gives them out.
#![expect(
    unsafe_code,
    reason = "a driver trusts what it is given to be what it gave"
)]

use super::device::Device;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use tabla_core::exec::Digest;

/// How a file begins: the name and version of its layout. Then come the sum of the driver's bytes,
/// little endian, and these.
const MAGIC: [u8; 8] = *b"tablaPC1";
const HEAD_BYTES: usize = 16;
/// How the driver's bytes begin, by the specification of Vulkan: with what names the driver.
const DRIVER_HEAD_BYTES: usize = 32;
/// Bytes of a file at most. Kernels of older versions are never dropped from it: it begins anew.
const BYTES_MAX: u64 = 64 << 20;

/// The file of a device, and the driver's bytes that were in it.
#[derive(Debug)]
pub(super) struct PipelineCache {
    path: Option<PathBuf>,
    bytes: Vec<u8>,
}

impl PipelineCache {
    /// What was kept for this device. Nothing where no folder was named; nothing either, and the
    /// log says why, where the file is damaged.
    pub(super) fn read(device: &Device) -> Self {
        let folder = device.kernel_folder.as_deref();
        let path = folder.map(|folder| folder.join(file_name(device)));
        let bytes = path
            .as_deref()
            .map_or_else(Vec::new, |path| match read(path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "compiled kernels are not used");
                    Vec::new()
                }
            });
        Self { path, bytes }
    }

    /// The driver's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether anything is to be kept.
    pub(super) fn wanted(&self) -> bool {
        self.path.is_some()
    }

    /// Keeps these bytes of the driver from now on. That they cannot be is no failure of a load.
    pub(super) fn replace(&self, bytes: &[u8]) {
        // As many bytes behind the same head are the same kernels, in whatever order.
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
            tracing::warn!(path = %path.display(), %error, "compiled kernels are not kept");
        }
    }
}

/// wgpu's own cache with what was kept; `None` where nothing is to be.
pub(super) fn cache(device: &Device, kept: &PipelineCache) -> Option<wgpu::PipelineCache> {
    if !kept.wanted()
        || !device
            .wgpu
            .features()
            .contains(wgpu::Features::PIPELINE_CACHE)
    {
        return None;
    }
    let descriptor = wgpu::PipelineCacheDescriptor {
        label: Some("kernels"),
        data: Some(kept.bytes()).filter(|bytes| !bytes.is_empty()),
        fallback: true,
    };
    // SAFETY: the bytes are of a cache of this adapter: the file's name and sum say so.
    let made = device.caught(|| unsafe { device.wgpu.create_pipeline_cache(&descriptor) });
    match made {
        (cache, None) => Some(cache),
        (_, Some(_)) => None,
    }
}

/// A file for each adapter and way of replaying: wgpu adds a head of its own.
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
    let damaged = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    if !(HEAD_BYTES as u64..=BYTES_MAX).contains(&size) {
        return Err(damaged(format!("{size} bytes are no such file's")));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(BYTES_MAX).read_to_end(&mut bytes)?;
    let (head, rest) = bytes.split_at(HEAD_BYTES.min(bytes.len()));
    if head[..MAGIC.len()] != MAGIC {
        return Err(damaged("it begins otherwise".into()));
    }
    if head[MAGIC.len()..] != sum(rest).to_le_bytes() {
        return Err(damaged("its sum is another".into()));
    }
    Ok(rest.to_vec())
}

/// Writes the file whole, or not at all.
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
    file.extend(sum(bytes).to_le_bytes());
    file.extend(bytes);
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::write(&partial, file).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn sum(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.add(bytes);
    digest.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("tabla-kept-{}", std::process::id()));
        let path = folder.join("a").join("b.kernels");
        assert_eq!(
            read(&path).expect_err("none").kind(),
            io::ErrorKind::NotFound
        );
        for bytes in [&b""[..], b"what a driver gave"] {
            write(&path, bytes).expect("it can be written");
            assert_eq!(read(&path).expect("it was written"), bytes);
        }
        let whole = fs::read(&path).expect("it was written");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&path, damaged).expect("it can be written");
            let error = read(&path).expect_err("damaged");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
        }
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).expect("it can be written");
            let error = read(&path).expect_err("cut off");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{end} bytes");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
