//! Embeds every file that kernels are made of: `$OUT_DIR/sources.rs`, a list of names and texts.

use std::fmt::Write as _;
use std::path::PathBuf;

#[path = "src/files.rs"]
mod files;

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // Folders, so that a new file is seen, too.
    println!("cargo::rerun-if-changed=.");
    let mut text = String::from("&[\n");
    for (name, path) in files::files(&root) {
        writeln!(text, "    ({name:?}, include_str!({path:?})),").expect("a String takes it");
    }
    text.push_str("]\n");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("sources.rs"), text).expect("OUT_DIR takes files");
}
