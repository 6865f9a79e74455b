//! The files of the kernels, by their paths below the folder of this crate. Also a module of the
//! build script, so it imports nothing.

use std::path::{Path, PathBuf};

/// Every file that kernels are made of, sorted by name: the WGSL files of the root and of `lib`,
/// and the lists `variants` and `forms`.
pub(crate) fn files(root: &Path) -> Vec<(String, PathBuf)> {
    let mut files: Vec<_> = ["forms", "variants"]
        .map(|name| (name.to_string(), root.join(name)))
        .into();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the folder can be listed").path();
            if path.is_dir() {
                // Of the root's folders only `lib` has kernels.
                if folder != root || path.ends_with("lib") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|kind| kind == "wgsl") {
                let name = path.strip_prefix(root).expect("below the root");
                let name = name.to_str().expect("names are ASCII").replace('\\', "/");
                files.push((name, path));
            }
        }
    }
    files.sort();
    files
}
