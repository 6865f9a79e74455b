//! Temporary folders, which are deleted when they are dropped.

use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let prefix = format!("tabla-{name}-");
        // The standard library has no folder for temporary files in WebAssembly.
        let folder = match cfg!(target_family = "wasm") {
            true => TempDir::with_prefix_in(prefix, "/tmp"),
            false => TempDir::with_prefix(prefix),
        };
        Self(folder.expect("a temporary folder").keep())
    }

    /// Copies the content of another folder.
    pub(crate) fn copy(&self, from: &Path) {
        copy(from, &self.0);
    }

    /// Copies the content of another folder to a folder inside.
    pub(crate) fn copy_to(&self, inside: &str, from: &Path) {
        copy(from, &self.0.join(inside));
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("file is writable");
        path
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.join(name)).expect("file exists");
    }

    /// Replaces all occurrences of a text in a file.
    pub(crate) fn edit(&self, name: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.0.join(name)).expect("a text");
        assert!(text.contains(from), "{name} has no {from}: {text}");
        self.write(name, text.replace(from, to).as_bytes());
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("folder can be created");
    for entry in from.read_dir().expect("a folder") {
        let path = entry.expect("a folder").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, to).expect("file can be copied");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Name, type, shape and bytes of a tensor.
pub(crate) type Tensor = (String, &'static str, Vec<u64>, Vec<u8>);

/// Creates a safetensors file.
pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::<u8>::new());
    for (name, dtype, shape, bytes) in tensors {
        let from = data.len();
        data.extend(bytes);
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}
