//! Embeds the kernel sources: generates `$OUT_DIR/sources.rs`, a list of names and texts.

use std::fmt::Write as _;
use std::path::PathBuf;

#[path = "src/files.rs"]
mod files;

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // The directory, so that new files are detected.
    println!("cargo::rerun-if-changed=.");
    let mut text = String::from("&[\n");
    for (name, path) in files::files(&root) {
        writeln!(text, "    ({name:?}, include_str!({path:?})),")
            .expect("writing to a String cannot fail");
    }
    text.push_str("]\n");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("sources.rs"), text).expect("OUT_DIR is writable");
}
