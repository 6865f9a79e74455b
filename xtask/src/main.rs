//! Developer tools: `cargo xtask affected`, `cargo xtask bless`, `cargo xtask dist`, `cargo
//! xtask exhaustive`, `cargo xtask gpu-lab`, `cargo xtask gpu-stats`, `cargo xtask install`, `cargo xtask man`,
//! `cargo xtask reproducible`, `cargo xtask sanitize`, `cargo xtask sbom`, `cargo xtask size`.

use std::path::Path;
use std::process::ExitCode;
use xtask::{
    Target, affected, bless, dist, exhaustive, gpu_lab, gpu_stats, install, man, reproducible,
    sanitize, sbom, size,
};

const USAGE: &str = "\
cargo xtask affected [BASE]  Run the tests that cover the files that differ from a commit,
                            by default the last one
cargo xtask bless            Write the generated files: include/tabla.h, docs/OPS.md, docs/modules.md, types of options,
                            and numbers of crates in docs/dependencies.md
cargo xtask dist FOLDER [TARGET]
                            Build the files of a release; x86_64-unknown-linux-gnu.2.28 links for glibc 2.28
                            with cargo-zigbuild
cargo xtask exhaustive       Run the tests with all kernel variants, storage types and replay modes,
                            and loom's tests in every interleaving
cargo xtask gpu-lab [FOLDER [PART...]]
                            Test the GPU kernels with a newer driver in a chroot, and print statistics
                            of compilers for other GPUs
cargo xtask gpu-stats ...    Print what RADV's compiler says about the GPU kernels; --help lists the options
cargo xtask install PREFIX [TARGET]
                            Build and install the C library: header, shared and static library,
                            pkg-config and CMake files; and the program, with man pages and completions
cargo xtask man FOLDER       Write the man pages of the program
cargo xtask reproducible     Build the C library in two folders and compare the bytes
cargo xtask sanitize [asan|tsan|miri] [PACKAGE...]
                            Run tests with AddressSanitizer and LeakSanitizer, with ThreadSanitizer,
                            and under Miri
cargo xtask sbom FOLDER [TARGET]
                            Write a bill of materials in CycloneDX for the program, the C library
                            and the Python wheel
cargo xtask size             Count lines by folder, and list long files";

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "command-line output"
)]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["affected"] => affected("HEAD"),
        ["affected", base] => affected(base),
        ["bless"] => bless(),
        ["dist", folder] => dist(Path::new(folder), &Target::default()),
        ["dist", folder, target] => dist(Path::new(folder), &Target::new(target)),
        ["exhaustive"] => exhaustive(),
        ["gpu-lab", ref arguments @ ..] => gpu_lab(arguments),
        ["gpu-stats", ref args @ ..] => gpu_stats(args),
        ["install", prefix] => install(Path::new(prefix), &Target::default()),
        ["install", prefix, target] => install(Path::new(prefix), &Target::new(target)),
        ["man", folder] => man(Path::new(folder)),
        ["reproducible"] => reproducible(),
        ["sanitize", ref arguments @ ..] => sanitize(arguments),
        ["sbom", folder] => sbom(Path::new(folder), None),
        ["sbom", folder, target] => sbom(Path::new(folder), Some(target)),
        ["size"] => size(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
