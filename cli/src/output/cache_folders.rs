//! Cache folders.

use std::path::PathBuf;

/// Returns the user's cache folder: `XDG_CACHE_HOME`, otherwise `~/.cache`.
pub(crate) fn folder() -> Option<PathBuf> {
    path_from_env("XDG_CACHE_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
}

/// Returns the folder of the results of `tabla tune`.
pub(crate) fn tunings() -> Option<PathBuf> {
    Some(folder()?.join("tabla").join("tunings"))
}

/// Returns the folder of compiled GPU kernels.
pub(crate) fn kernels() -> Option<PathBuf> {
    Some(folder()?.join("tabla").join("kernels"))
}

/// Returns the folder of compiled models.
pub(crate) fn compiled() -> Option<PathBuf> {
    Some(folder()?.join("tabla").join("compiled"))
}

/// Returns the file of the lines that were entered in chats.
pub(crate) fn chat_history() -> Option<PathBuf> {
    Some(folder()?.join("tabla").join("chat_history"))
}

/// Returns the path in an environment variable; `None` if unset or empty.
pub(crate) fn path_from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name)?;
    (!value.is_empty()).then(|| PathBuf::from(value))
}
