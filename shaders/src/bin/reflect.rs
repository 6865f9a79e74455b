//! `cargo reflect`: generates crates/core/src/op/params.rs from the shaders.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::write(
        root.join(tabla_shaders::reflect::PATH),
        tabla_shaders::reflect::params(),
    )
}
