//! Folders that commands keep things in for one another.

use std::path::PathBuf;

/// The user's folder of caches, where there is a home: `XDG_CACHE_HOME`, else `~/.cache`.
pub(crate) fn folder() -> Option<PathBuf> {
    path_from_env("XDG_CACHE_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
}

/// Where `tabla tune` keeps what it measured.
pub(crate) fn tunings() -> Option<PathBuf> {
    Some(folder()?.join("tabla").join("tunings"))
}

/// Where the compiled kernels of GPUs are kept.
pub(crate) fn kernels() -> Option<PathBuf> {
    Some(folder()?.join("tabla").join("kernels"))
}

/// A path that a variable has, if it is not empty.
pub(crate) fn path_from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name)?;
    (!value.is_empty()).then(|| PathBuf::from(value))
}
