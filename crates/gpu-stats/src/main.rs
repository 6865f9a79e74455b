//! Prints what the compiler says about the GPU kernels: `cargo xtask gpu-stats`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "command-line output"
)]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    tabla_gpu_stats::main(&args, &|text| print!("{text}"), &|text| eprint!("{text}"))
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::print_stderr, reason = "command-line output")]
fn main() -> ExitCode {
    eprintln!("gpu-stats requires Linux and Mesa's RADV");
    ExitCode::FAILURE
}
