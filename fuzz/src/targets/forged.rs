//! Compiled models with changes and a correct digest of the header, as a forger would write them.

use super::errors::accepted;
use super::folder::Folder;
use super::models::{LLAMA, load, options};
use std::ops::ControlFlow;
use std::sync::OnceLock;
use tabla::format::Directory;
use tabla::load::DeviceChoice;
use tabla::{Session, Source};

/// A compiled model.
pub(crate) struct Compiled {
    pub(crate) bytes: Vec<u8>,
    pub(crate) directory: Directory,
    /// Size of the header.
    head: usize,
    /// Place of the digest.
    digest: usize,
}

/// The compiled model, which is made once.
pub(crate) fn compiled() -> &'static Compiled {
    static COMPILED: OnceLock<Compiled> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let folder = Folder::new();
        let path = folder.path().join("model.tabla");
        let mut go_on = |_, _| ControlFlow::Continue(());
        let (source, devices) = (Source::bytes(LLAMA), [DeviceChoice::Cpu]);
        tabla::tools::compile_model(&source, &path, &devices, &options(), &mut go_on)
            .expect("it compiles");
        let bytes = std::fs::read(&path).expect("a file");
        let directory =
            tabla::tools::open_directory(&Source::bytes(bytes.clone())).expect("it opens");
        let (head, digest) = (
            directory.head().len(),
            directory.tensor("tabla.digest").expect("a digest").offset,
        );
        Compiled {
            bytes,
            directory,
            head,
            digest: digest as usize,
        }
    })
}

/// Loads a changed model and computes a prompt, which reads and writes nothing outside of its buffers. A kernel may panic
/// at an index out of range; the run then fails.
pub(crate) fn replay(mut forged: Vec<u8>) {
    let Compiled { head, digest, .. } = compiled();
    let hash = blake3::hash(&forged[..*head]);
    forged[*digest..*digest + 32].copy_from_slice(hash.as_bytes());
    let source = Source::bytes(forged.clone());
    if let Some(model) = accepted(forged.len(), || load(source)) {
        let _ = Session::new(model).prefill(&[1, 2, 3]);
    }
}
