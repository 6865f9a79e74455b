//! The program: selects the driver in a process of its own.

use crate::compiler::adapter;
use crate::options::{Flag, Options, USAGE};
use crate::report;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// First argument of the process that loads the driver.
const CHILD: &str = "--driver-is-selected";
/// Folder with the manifests of Vulkan drivers.
const MANIFESTS: &str = "/usr/share/vulkan/icd.d";
/// Version of the driver that the budgets are for: that of Debian 12.
const BUDGET_DRIVER: &str = "Mesa 22.3";
/// Exit code if there is no driver, or not that of the budgets.
const NO_DRIVER: u8 = 3;

/// Runs the program. Vulkan's loader and Mesa read the environment when they are loaded, so a child
/// process with another environment does the work.
pub fn main(args: &[String], print: &dyn Fn(&str), print_error: &dyn Fn(&str)) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print(&format!("{USAGE}\n"));
        return ExitCode::SUCCESS;
    }
    let (child, args) = match args.split_first() {
        Some((first, rest)) if first == CHILD => (true, rest),
        _ => (false, args),
    };
    let done = Options::parse(args).and_then(|options| match child {
        true => with_adapter(&options, print, print_error),
        false => with_driver(&options, args, print_error),
    });
    done.unwrap_or_else(|error| {
        print_error(&format!("{error}\n"));
        ExitCode::FAILURE
    })
}

/// Does the work with the adapter of the driver.
fn with_adapter(
    options: &Options,
    print: &dyn Fn(&str),
    print_error: &dyn Fn(&str),
) -> Result<ExitCode, String> {
    let Some(adapter) = adapter() else {
        print_error("no driver: Vulkan's loader finds no adapter\n");
        return Ok(ExitCode::from(NO_DRIVER));
    };
    let driver = adapter.get_info().driver_info;
    if options.has(Flag::Check) && !driver.starts_with(BUDGET_DRIVER) {
        print_error(&format!(
            "no driver: budgets are for {BUDGET_DRIVER}, this is {driver}\n"
        ));
        return Ok(ExitCode::from(NO_DRIVER));
    }
    report::run(options, adapter, print).map(|()| ExitCode::SUCCESS)
}

/// Runs the program again with the null device of RADV as its only driver.
fn with_driver(
    options: &Options,
    args: &[String],
    print_error: &dyn Fn(&str),
) -> Result<ExitCode, String> {
    let Some(manifest) = options
        .icd
        .clone()
        .or_else(|| manifest(Path::new(MANIFESTS)))
    else {
        print_error(&format!("no driver: {MANIFESTS} has no manifest of RADV\n"));
        return Ok(ExitCode::from(NO_DRIVER));
    };
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command
        .arg(CHILD)
        .args(args)
        .env("VK_ICD_FILENAMES", &manifest)
        .env("VK_DRIVER_FILES", &manifest)
        // The statistics of cached kernels are not kept.
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        // Mesa's device selection layer prints an error without a display.
        .env("NODEVICE_SELECT", "1");
    // With a shim of the kernel's interface, RADV finds a device; Mesa 26 rejects the variable.
    if std::env::var_os("AMDGPU_GPU_ID").is_none() {
        command.env("RADV_FORCE_FAMILY", &options.family);
    }
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    }
    let status = command.status().map_err(|e| e.to_string())?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Returns the manifest of RADV in a folder.
fn manifest(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    entries.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("radeon_icd") && name.ends_with(".json")
    })
}
