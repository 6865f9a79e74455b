//! List of the kernel source files. Shared with the build script, so it has no dependencies on
//! other modules.

use std::path::{Path, PathBuf};

/// Lists the kernel source files, sorted by name: the WGSL files of the root and of `lib`, and the
/// lists `dtypes` and `variants`.
pub(crate) fn files(root: &Path) -> Vec<(String, PathBuf)> {
    let mut files: Vec<_> = ["dtypes", "variants"]
        .map(|name| (name.to_string(), root.join(name)))
        .into();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the directory is readable") {
            let path = entry.expect("the directory is readable").path();
            if path.is_dir() {
                // `lib` is the only directory with WGSL files.
                if folder != root || path.ends_with("lib") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|kind| kind == "wgsl") {
                let name = path.strip_prefix(root).expect("the path is below the root");
                let name = name.to_str().expect("names are ASCII").replace('\\', "/");
                files.push((name, path));
            }
        }
    }
    files.sort();
    files
}
