//! `cargo xtask affected`: runs the tests that cover the changed files.

use crate::generated::generated;
use crate::tree::{Result, root};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

/// Tests of a folder.
struct Rule {
    /// Start of the paths.
    prefix: &'static str,
    /// Packages whose tests run.
    packages: &'static [&'static str],
    /// Filters of the integration tests `tests/it`.
    it: &'static [&'static str],
}

const fn rule(
    prefix: &'static str,
    packages: &'static [&'static str],
    it: &'static [&'static str],
) -> Rule {
    Rule {
        prefix,
        packages,
        it,
    }
}

/// Every rule whose prefix fits applies. A file `tests/it/<module>.rs` runs its own tests.
const RULES: &[Rule] = &[
    rule("cli/", &["tabla-cli"], &[]),
    rule("Cargo.lock", &["xtask"], &[]),
    rule("Cargo.toml", &["xtask"], &[]),
    rule("README.md", &["tabla-capi"], &[]),
    rule("crates/audio/", &["tabla-audio"], &["speech"]),
    rule("crates/capi/", &["tabla-capi", "xtask"], &[]),
    rule("crates/core/", &["tabla-core"], &[]),
    rule(
        "crates/core/src/op/",
        &["tabla-shaders", "tabla-cpu", "xtask"],
        &["sampling::", "tables::"],
    ),
    rule("crates/cpu/", &["tabla-cpu"], &[]),
    rule(
        "crates/format/",
        &["tabla-format"],
        &["formats::", "checkpoints::"],
    ),
    rule("crates/gpu/", &["tabla-gpu"], &["gpu::", "tables::"]),
    rule("crates/gpu-stats/", &["tabla-gpu-stats"], &[]),
    rule("crates/json-schema/", &[], &["grammar::", "structure::"]),
    rule(
        "crates/load/",
        &["tabla-load", "tabla-tools"],
        &["formats::", "checkpoints::", "arch_errors::"],
    ),
    rule(
        "crates/load/src/arch/",
        &[],
        &["archs::", "arch_errors::", "tables::"],
    ),
    rule("crates/plan/", &["tabla-plan"], &["tables::"]),
    rule(
        "crates/core/src/dtype.rs",
        &["tabla-quant", "tabla-cpu"],
        &["blocks::"],
    ),
    rule(
        "crates/quant/",
        &["tabla-quant", "tabla-cpu"],
        &["blocks::", "gpu::"],
    ),
    rule("crates/server/", &["tabla-server"], &[]),
    rule("crates/speech/", &["tabla-speech"], &["speech"]),
    rule("crates/testkit/", &["tabla-cpu"], &["gpu::"]),
    rule(
        "crates/text/",
        &["tabla-text"],
        &["chat::", "grammar", "tokenizer::", "tool_calls::"],
    ),
    rule("crates/tools/", &["tabla-tools"], &["conversions::"]),
    rule("docs/c.md", &["tabla-capi"], &[]),
    rule("docs/models.md", &["tabla"], &["conversions::"]),
    rule("include/", &["tabla-capi"], &[]),
    rule(
        "options/",
        &["tabla", "tabla-capi", "tabla-cli", "tabla-server", "xtask"],
        &["sampling::"],
    ),
    rule(
        "shaders/",
        &["tabla-shaders", "tabla-gpu-stats"],
        &["gpu::", "tables::"],
    ),
    rule("src/", &["tabla"], &[]),
    rule(
        "src/decode/",
        &[],
        &[
            "generation::",
            "sessions::",
            "batching::",
            "speculate::",
            "structure::",
        ],
    ),
    rule("src/decode/speech/", &[], &["speech"]),
    rule("tests/capi/", &["tabla-capi"], &[]),
    rule("tests/it/gpu/", &[], &["gpu::"]),
    rule("xtask/", &["xtask"], &[]),
];

/// Files of `tests/it` without tests: they run all of it.
const HELPERS: &[&str] = &["common", "main", "npy", "speech_model", "temp_folder"];

/// Runs the tests that cover the files that differ from a commit of git.
///
/// # Errors
///
/// If git or a test fails.
pub fn affected(base: &str) -> Result<String> {
    let files = changed_files(base)?;
    let mut report = String::new();
    for args in commands(&files) {
        writeln!(report, "cargo {}", args.join(" "))?;
        let status = Command::new(env!("CARGO"))
            .args(&args)
            .current_dir(root())
            .status()?;
        if !status.success() {
            return Err(format!("failed: cargo {}", args.join(" ")).into());
        }
    }
    Ok(report)
}

/// Returns the files that differ from `base`, and new ones.
fn changed_files(base: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for args in [
        &["diff", "--name-only", base, "--"][..],
        &["ls-files", "--others", "--exclude-standard"],
    ] {
        let listed = Command::new("git")
            .args(args)
            .current_dir(root())
            .output()?;
        if !listed.status.success() {
            let message = String::from_utf8_lossy(&listed.stderr);
            return Err(format!("git {}: {}", args.join(" "), message.trim()).into());
        }
        let listed = String::from_utf8(listed.stdout)?;
        files.extend(listed.lines().map(str::to_string));
    }
    Ok(files)
}

/// Returns the arguments of cargo for the tests that cover these files. The rules of the repository apply to every
/// file.
fn commands(files: &[String]) -> Vec<Vec<String>> {
    let mut packages: BTreeSet<&str> = BTreeSet::new();
    let mut it: BTreeSet<String> = BTreeSet::new();
    for file in files {
        if generated().any(|generated| generated.path == *file) {
            packages.insert("xtask");
        }
        for rule in RULES.iter().filter(|rule| file.starts_with(rule.prefix)) {
            packages.extend(rule.packages);
            it.extend(rule.it.iter().map(|filter| (*filter).to_string()));
        }
        let module = file.strip_prefix("tests/it/");
        if let Some(module) = module.and_then(|file| file.strip_suffix(".rs")) {
            let module = module.strip_suffix("/mod").unwrap_or(module);
            it.insert(match HELPERS.contains(&module) {
                true => "::".to_string(),
                false => format!("{}::", module.replace('/', "::")),
            });
        }
    }
    // The first lines of every file are in a generated page.
    let mut all = vec![
        args("test -q -p tabla-core --test tidy"),
        args("test -q -p xtask --test fresh"),
    ];
    if packages.remove("tabla") {
        all.push(args("test -p tabla --lib"));
    }
    if !packages.is_empty() {
        let packages: Vec<_> = packages.into_iter().collect();
        all.push(args(&format!("test -p {}", packages.join(" -p "))));
    }
    if !it.is_empty() {
        let mut tests = args("test -p tabla --test it --");
        tests.extend(it);
        all.push(tests);
    }
    all
}

fn args(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(files: &[&str]) -> Vec<String> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_string()).collect();
        let commands = commands(&files).into_iter().skip(2);
        commands.map(|args| args.join(" ")).collect()
    }

    #[test]
    fn changed_files_select_tests() {
        assert!(lines(&["docs/serve.md"]).is_empty());
        assert_eq!(
            lines(&["crates/cpu/src/pool.rs", "crates/format/src/gguf.rs"]),
            [
                "test -p tabla-cpu -p tabla-format",
                "test -p tabla --test it -- checkpoints:: formats::"
            ]
        );
        assert_eq!(
            lines(&[
                "crates/load/src/arch/llama.rs",
                "tests/it/arch_errors/config.rs"
            ]),
            [
                "test -p tabla-load -p tabla-tools",
                "test -p tabla --test it -- arch_errors:: arch_errors::config:: archs:: checkpoints:: formats:: tables::"
            ]
        );
    }

    #[test]
    fn helpers_of_integration_tests_run_all_of_them() {
        for name in HELPERS {
            let file = format!("tests/it/{name}.rs");
            assert!(root().join(&file).exists(), "{file}");
            assert_eq!(lines(&[&file]), ["test -p tabla --test it -- ::"]);
        }
        assert_eq!(
            lines(&["tests/it/gpu/mod.rs"]),
            ["test -p tabla --test it -- gpu::"]
        );
    }

    #[test]
    fn every_folder_of_code_has_a_rule() {
        let names = std::fs::read_dir(root().join("tests/it")).expect("a folder");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let modules: Vec<_> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        for rule in RULES {
            assert!(root().join(rule.prefix).exists(), "{}", rule.prefix);
            for filter in rule.it {
                let module = filter.trim_end_matches("::");
                assert!(
                    modules.iter().any(|name| name.starts_with(module)),
                    "{filter}"
                );
            }
        }
        for entry in std::fs::read_dir(root().join("crates")).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let file = format!("crates/{}/src/lib.rs", name.to_string_lossy());
            assert!(!lines(&[&file]).is_empty(), "{file}");
        }
    }
}
