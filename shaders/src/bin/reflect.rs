//! `cargo reflect`: generates crates/core/src/op/params.rs from the shaders.
//!
//! `cargo reflect -- FOLDER` writes the WGSL of the kernels to a folder instead, in the form that browsers accept.

use std::path::Path;
use tabla_shaders::{reflect, standard};

fn main() -> std::io::Result<()> {
    if let Some(folder) = std::env::args_os().nth(1) {
        return write_kernels(Path::new(&folder));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::write(root.join(reflect::PATH), reflect::params())
}

/// Writes a file per kernel.
fn write_kernels(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for kernel in reflect::kernels() {
        std::fs::write(folder.join(kernel.name + ".wgsl"), standard(&kernel.text))?;
    }
    Ok(())
}
