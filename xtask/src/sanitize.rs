//! `cargo xtask sanitize`: runs tests with the sanitizers of addresses, leaks and threads, and under Miri.
//! docs/reliability.md has the results.

use crate::tree::{Result, root};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Instant;

/// A tool that checks the memory accesses of tests.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    toolchain: Toolchain,
    /// Arguments of cargo.
    cargo: &'static [&'static str],
    /// Flags of rustc.
    flags: &'static str,
    /// Other environment variables.
    environment: &'static [(&'static str, &'static str)],
    /// The environment variable of a list of reports that are not faults, and its file.
    suppressions: Option<(&'static str, &'static str)>,
    /// Beginnings of reports in the output.
    reports: &'static [&'static str],
}

#[derive(Debug)]
enum Toolchain {
    /// The toolchain of the workspace, with unstable flags.
    Current,
    /// The nightly toolchain with these components.
    Nightly(&'static [&'static str]),
}

/// Tests that run with a tool.
#[derive(Debug)]
struct Run {
    tool: &'static Tool,
    /// The package, or [`WORKSPACE`].
    package: &'static str,
    /// Level of the kernels (`--cfg tabla_level`); empty for all.
    level: &'static str,
    /// Arguments of `cargo test` that select programs.
    programs: &'static [&'static str],
    /// Parts of the names of tests; empty for all.
    filters: &'static [&'static str],
    /// Parts of the names of tests that do not run, and the reason.
    excluded: &'static [(&'static str, &'static str)],
}

/// With leaks, except those of drivers. The standard library and libraries of the system are not instrumented.
static ASAN: Tool = Tool {
    name: "asan",
    toolchain: Toolchain::Current,
    // With an explicit target, build scripts and macros are not instrumented. Mesa's software GPU stays loaded to the end:
    // what only an unloaded library refers to is reported as a leak.
    cargo: &[
        "test",
        "--target=x86_64-unknown-linux-gnu",
        "--config=target.x86_64-unknown-linux-gnu.runner=['env', 'LD_PRELOAD=libvulkan_lvp.so']",
    ],
    flags: "-Zsanitizer=address",
    environment: &[
        ("RUSTC_BOOTSTRAP", "1"),
        // A failed allocation is an error, as without the tool, and the handler of truncated files is ours.
        (
            "ASAN_OPTIONS",
            "allocator_may_return_null=1:handle_sigbus=0:detect_stack_use_after_return=1:strict_string_checks=1",
        ),
    ],
    suppressions: Some(("LSAN_OPTIONS", "xtask/src/leaks_of_drivers.txt")),
    reports: &["ERROR: AddressSanitizer", "ERROR: LeakSanitizer"],
};

/// The standard library is compiled too: if its locks are not instrumented, correct code is reported.
static TSAN: Tool = Tool {
    name: "tsan",
    toolchain: Toolchain::Nightly(&["rust-src"]),
    cargo: &["test", "-Zbuild-std", "--target=x86_64-unknown-linux-gnu"],
    flags: "-Zsanitizer=thread",
    environment: &[],
    suppressions: Some(("TSAN_OPTIONS", "xtask/src/races_of_tokio.txt")),
    reports: &["WARNING: ThreadSanitizer"],
};

static MIRI: Tool = Tool {
    name: "miri",
    toolchain: Toolchain::Nightly(&["miri", "rust-src"]),
    cargo: &["miri", "test"],
    flags: "",
    // Tests read files of the repository.
    environment: &[("MIRIFLAGS", "-Zmiri-disable-isolation")],
    suppressions: None,
    reports: &["error: Undefined Behavior", "error: memory leaked"],
};

/// All packages.
const WORKSPACE: &str = "workspace";

/// Every run. A run without a level of kernels has all of them.
const RUNS: &[Run] = &[
    Run {
        excluded: &[
            ("generating_a_token_does_not_allocate", ADDRESS_SPACE),
            ("missing_memory_is_an_error", ADDRESS_SPACE),
            ("invalid_wav_headers_are_rejected", OVERFLOW),
            ("chats_and_sessions_behave_as_documented", C_PROGRAMS),
            ("hooks_behave_as_documented", C_PROGRAMS),
            ("transcriptions_behave_as_documented", C_PROGRAMS),
            ("contract_holds", C_PROGRAMS),
            ("examples_print_expected_output", C_PROGRAMS),
            ("exports_match_the_list", C_PROGRAMS),
            ("programs_of_the_documentation_run", C_PROGRAMS),
            ("random_calls_are_safe", C_PROGRAMS),
            ("installed_library_is_found_and_used", C_PROGRAMS),
            ("artifact_bundle_can_be_linked", C_PROGRAMS),
            ("work_without_an_end_is_a_device_loss", KEPT),
            ("leaked_answer_does_not_block_the_model", LEAKED),
        ],
        // Without those of the documentation, which are compiled without these flags.
        ..run(&ASAN, WORKSPACE, "avx2", &["--lib", "--bins", "--tests"])
    },
    run(&ASAN, "tabla-cpu", "", &[]),
    Run {
        excluded: &[
            ("all_levels_match_scalar_level", ONE_THREAD),
            ("fast_precision_is_close_to_exact", ONE_THREAD),
            ("peak::", ONE_THREAD),
            ("result_is_independent_of_packing", ONE_THREAD),
            ("scalar_level_matches_formulas", ONE_THREAD),
            ("simd::", ONE_THREAD),
            ("wrong_parameters_are_errors", ONE_THREAD),
        ],
        ..run(&TSAN, "tabla-cpu", "avx2", &[])
    },
    run(&TSAN, "tabla", "avx2", &["--lib"]),
    Run {
        filters: &[
            "batching::",
            "generation::",
            "sessions::",
            "slots::",
            "speculate::",
        ],
        ..run(&TSAN, "tabla", "avx2", &["--test=it"])
    },
    Run {
        excluded: &[("slow_readers_do_not_slow_others", SLOW_CLIENT)],
        ..run(&TSAN, "tabla-server", "avx2", &["--lib", "--tests"])
    },
    Run {
        excluded: &[
            ("errors_match_documented_values", SLOW),
            ("extreme_numbers_are_encoded", SLOW),
            ("importance_lowers_weighted_error", SLOW),
            ("section_sizes_match_their_data", SLOW),
        ],
        ..run(&MIRI, "tabla-quant", "scalar", &["--lib"])
    },
    Run {
        excluded: &[
            ("ggml::tests::truncated_files_are_errors", SLOW),
            ("maps_files_and_detects_changes", NO_MAPS),
            ("reads_part_of_tensor_and_reports_truncated_file", NO_MAPS),
            ("safetensors::tests::rejects_every_truncation", SLOW),
        ],
        ..run(&MIRI, "tabla-format", "scalar", &["--lib"])
    },
    Run {
        filters: &[
            "base64::tests",
            "bpe::tests",
            "bytelevel::tests",
            "fallback::tests",
            "hash::tests",
            "index::tests",
            "pieces::tests",
            "ranks::tests",
            "special::tests",
            "steps::tests",
            "stops::tests",
            "stream::tests",
            "wordpiece::tests",
        ],
        excluded: &[
            ("chat::", SLOW),
            ("grammar::", SLOW),
            ("merges_long_words_in_linear_time", SLOW),
        ],
        ..run(&MIRI, "tabla-text", "scalar", &["--lib"])
    },
    Run {
        filters: &[
            "buffer_accesses",
            "burst_ends",
            "functions::",
            "no_active_rows",
            "result_is_independent_of_thread_count",
            "weights_are_read_after_packing",
        ],
        excluded: &[("top_k_threshold_matches_sorting", SLOW)],
        ..run(&MIRI, "tabla-cpu", "scalar", &[])
    },
    Run {
        excluded: &[("panic_poisons_only_its_session", SLOW)],
        ..run(
            &MIRI,
            "tabla-capi",
            "scalar",
            &["--no-default-features", "--lib"],
        )
    },
];

const ADDRESS_SPACE: &str = "limits or measures memory, which the tool uses too";
const C_PROGRAMS: &str =
    "builds a library without the tool; tests/sanitizers.sh has C programs of tests/capi";
const KEPT: &str = "the memory of work that does not end is never freed";
const LEAKED: &str = "leaks on purpose";
const NO_MAPS: &str = "Miri maps no files";
const ONE_THREAD: &str = "one thread";
const OVERFLOW: &str = "a multiplication overflows in a decoder, which panics with checks only";
const SLOW_CLIENT: &str = "the client of the test waits for an answer for a limited time";
const SLOW: &str = "many inputs, or a model: too slow under Miri";

const fn run(
    tool: &'static Tool,
    package: &'static str,
    level: &'static str,
    programs: &'static [&'static str],
) -> Run {
    Run {
        tool,
        package,
        level,
        programs,
        filters: &[],
        excluded: &[],
    }
}

/// Runs the tests of one tool, or of all without a tool in the arguments. Packages select runs, and packages in the run of
/// the workspace. Options are those of cargo.
///
/// # Errors
///
/// If a test fails, a tool reports something, or no run has a package.
pub fn sanitize(arguments: &[&str]) -> Result<String> {
    let of_cargo = |argument: &&&str| argument.starts_with('-');
    let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(of_cargo);
    let is_tool = |name: &&&str| [&ASAN, &TSAN, &MIRI].iter().any(|tool| tool.name == **name);
    let (tools, packages): (Vec<&str>, Vec<&str>) = names.iter().partition(is_tool);
    let mut failed = 0;
    let mut runs = 0;
    for run in RUNS {
        let selected: Vec<&str> = match run.package {
            _ if packages.is_empty() => vec![run.package],
            WORKSPACE => packages.clone(),
            package if packages.contains(&package) => vec![package],
            _ => continue,
        };
        if !tools.is_empty() && !tools.contains(&run.tool.name) {
            continue;
        }
        let (line, passed) = execute(run, &selected, &options)?;
        print(&line);
        runs += 1;
        failed += usize::from(!passed);
    }
    match (runs, failed) {
        (0, _) => Err(format!("no run has the packages {}", packages.join(" ")).into()),
        (_, 0) => Ok("no run failed\n".to_string()),
        _ => Err(format!("{failed} of {runs} runs failed").into()),
    }
}

#[expect(clippy::print_stdout, reason = "a run takes minutes")]
fn print(line: &str) {
    println!("{line}");
}

/// Executes a run with options of cargo. Returns its line, and whether it passed or was skipped.
fn execute(run: &Run, packages: &[&str], options: &[&str]) -> Result<(String, bool)> {
    let tool = run.tool;
    let name = [&[tool.name], packages, run.programs, options].concat();
    let name = name.join(" ");
    if let Some(missing) = missing(&tool.toolchain) {
        return Ok((format!("SKIPPED: {name}: {missing}"), true));
    }
    let folder = root().join("target/sanitize");
    std::fs::create_dir_all(&folder)?;
    let file = name.replace(|c: char| !c.is_alphanumeric(), "-");
    let log = folder.join(format!("{file}.log"));
    let output = std::fs::File::create(&log)?;
    let started = Instant::now();
    let status = command(run, packages, options)
        .arg("--target-dir")
        .arg(folder.join(tool.name))
        .arg("--")
        .args(run.filters)
        .args(run.excluded.iter().flat_map(|(test, _)| ["--skip", test]))
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()?;
    let seconds = started.elapsed().as_secs();
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let [passed, failed, ignored] = counts(&text);
    let reports: usize = tool.reports.iter().map(|r| text.matches(r).count()).sum();
    let mut line = format!(
        "{name}: {passed} passed, {failed} failed, {ignored} ignored, {reports} reports, {seconds} s"
    );
    let good = status.success() && reports == 0 && passed > 0;
    if !good {
        write!(line, "; see {}", log.display())?;
    }
    for (test, reason) in run.excluded {
        write!(line, "\n    without {test}: {reason}")?;
    }
    Ok((line, good))
}

/// The command of a run up to the arguments of the tests.
fn command(run: &Run, packages: &[&str], options: &[&str]) -> Command {
    let tool = run.tool;
    let mut command = match tool.toolchain {
        Toolchain::Current => Command::new(env!("CARGO")),
        Toolchain::Nightly(_) => {
            let mut command = Command::new("rustup");
            command.args(["run", "nightly", "cargo"]);
            command
        }
    };
    command.current_dir(root()).args(tool.cargo);
    match packages {
        [WORKSPACE] => command.arg("--workspace"),
        _ => command.args(packages.iter().flat_map(|package| ["--package", package])),
    };
    let level = match run.level {
        "" => String::new(),
        level => format!("--cfg tabla_level=\"{level}\""),
    };
    if let Some((variable, file)) = tool.suppressions {
        let file = root().join(file);
        command.env(variable, format!("suppressions={}", file.display()));
    }
    command
        .args(run.programs)
        .args(options)
        .arg("--no-fail-fast")
        // Cargo sets variables of the toolchain that runs this program.
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env("RUSTFLAGS", [tool.flags, &level].join(" "))
        .envs(tool.environment.iter().copied());
    command
}

/// What to install for a toolchain, if it is not there.
fn missing(toolchain: &Toolchain) -> Option<String> {
    let Toolchain::Nightly(components) = toolchain else {
        let supported = cfg!(all(target_os = "linux", target_arch = "x86_64"));
        return (!supported).then(|| "Linux on x86-64 only".to_string());
    };
    let listed = Command::new("rustup")
        .args(["component", "list", "--installed", "--toolchain", "nightly"])
        .output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let listed = listed.unwrap_or_default();
    let has = |component: &&str| listed.lines().any(|line| line.starts_with(component));
    (!components.iter().all(has)).then(|| {
        let components = components.join(" -c ");
        format!("run `rustup toolchain install nightly -c {components}`")
    })
}

/// Sums the passed, failed and ignored tests in the output of `cargo test`.
fn counts(output: &str) -> [usize; 3] {
    let mut sums = [0; 3];
    let results = output
        .lines()
        .filter(|line| line.starts_with("test result:"));
    for part in results.flat_map(|line| line.split([';', '.'])) {
        let mut words = part.split_whitespace();
        let (Some(count), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        let at = ["passed", "failed", "ignored"]
            .iter()
            .position(|k| *k == kind);
        if let (Some(at), Ok(count)) = (at, count.parse::<usize>()) {
            sums[at] += count;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::{RUNS, counts};
    use crate::tree::root;

    #[test]
    fn results_of_all_programs_are_summed() {
        let output = "running 3 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.10s\n\
            test result: FAILED. 10 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.5s\n";
        assert_eq!(counts(output), [12, 3, 1]);
    }

    #[test]
    fn excluded_tests_exist() {
        let sources = sources(&root());
        for run in RUNS {
            for (test, reason) in run.excluded {
                let last = test.trim_end_matches("::").rsplit("::").next();
                let last = last.unwrap_or_default();
                let names = [format!("fn {last}"), format!("mod {last}")];
                let found = names.iter().any(|name| sources.contains(name.as_str()));
                assert!(found, "{} {}: no test {test}", run.tool.name, run.package);
                assert!(!reason.is_empty(), "{test}: no reason");
            }
        }
    }

    /// The text of all sources that have tests.
    fn sources(folder: &std::path::Path) -> String {
        let mut text = String::new();
        let mut folders = ["crates", "src", "tests", "cli", "xtask"]
            .map(|f| folder.join(f))
            .to_vec();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match path.extension() {
                    Some(extension) if extension == "rs" => {
                        text += &std::fs::read_to_string(path).unwrap_or_default();
                    }
                    _ if path.is_dir() => folders.push(path),
                    _ => {}
                }
            }
        }
        text
    }
}
