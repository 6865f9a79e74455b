//! The representative kernels keep their budgets (`shaders/budgets.toml`) on RADV's null device.

use std::io::Write as _;
use std::process::{Command, Output};
use std::time::Instant;

/// Exit code of the program if there is no driver, or not that of the budgets.
const NO_DRIVER: i32 = 3;

fn gpu_stats(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_gpu-stats");
    let mut command = Command::new(program);
    command.args(args).output().expect("the program runs")
}

/// Prints a line, bypassing the output capture of the test runner.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[test]
fn representative_kernels_keep_their_budgets() {
    let start = Instant::now();
    let output = gpu_stats(&["--representative", "--check"]);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(NO_DRIVER) {
        let required = std::env::var_os("TABLA_REQUIRE_GPU").is_some();
        assert!(!required, "{errors}");
        print(&format!(
            "SKIPPED: budgets of GPU kernels: {}",
            errors.trim()
        ));
        return;
    }
    assert!(output.status.success(), "{errors}");
    let first = printed.lines().next().unwrap_or_default();
    print(&format!("{first}; {:.1} s", start.elapsed().as_secs_f64()));
}

#[test]
fn a_driver_that_is_missing_has_its_own_exit_code() {
    let output = gpu_stats(&["--icd", "missing/radeon_icd.json", "rms_norm"]);
    assert_eq!(output.status.code(), Some(NO_DRIVER), "{output:?}");
}
