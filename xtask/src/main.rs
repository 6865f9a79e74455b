//! The developer's tools: `cargo xtask bless`, `cargo xtask exhaustive`,
//! `cargo xtask install`, `cargo xtask size`.

use std::path::Path;
use std::process::ExitCode;
use xtask::{bless, exhaustive, install, size};

const USAGE: &str = "\
cargo xtask bless            writes the generated files: include/tabla.h, docs/OPS.md
cargo xtask exhaustive       runs the tests with their matrices whole
cargo xtask install PREFIX   builds the library and installs it for C: header, shared and static
                             library, pkg-config and CMake files
cargo xtask size             counts lines by folder";

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program talks to its user"
)]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["bless"] => bless(),
        ["exhaustive"] => exhaustive(),
        ["install", prefix] => install(Path::new(prefix)),
        ["size"] => size(),
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
