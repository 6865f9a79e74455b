//! The developer's tools: `cargo xtask bless`, `cargo xtask size`.

use std::process::ExitCode;
use xtask::{bless, size};

const USAGE: &str = "\
cargo xtask bless   writes the generated files: include/tabla.h, docs/OPS.md
cargo xtask size    counts lines by folder";

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program talks to its user"
)]
fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("bless") => bless(),
        Some("size") => size(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
