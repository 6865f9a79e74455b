//! The program: selects the driver in a process of its own.

use crate::compiler::adapter;
use crate::options::{Options, USAGE};
use crate::report;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// First argument of the process that loads the driver.
const CHILD: &str = "--driver-is-selected";
/// Folder with the manifests of Vulkan drivers.
const MANIFESTS: &str = "/usr/share/vulkan/icd.d";
/// Exit code if there is no driver.
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
        true => match adapter() {
            Some(adapter) => report::run(&options, adapter, print).map(|()| ExitCode::SUCCESS),
            None => {
                print_error("no driver: Vulkan's loader finds no adapter\n");
                Ok(ExitCode::from(NO_DRIVER))
            }
        },
        false => with_driver(&options, args, print_error),
    });
    done.unwrap_or_else(|error| {
        print_error(&format!("{error}\n"));
        ExitCode::FAILURE
    })
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
        .env("RADV_FORCE_FAMILY", &options.family)
        // The statistics of cached kernels are not kept.
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        // Mesa's device selection layer prints an error without a display.
        .env("NODEVICE_SELECT", "1");
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
