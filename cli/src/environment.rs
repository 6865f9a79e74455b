//! Environment variables of the process.

/// Disables a layer of Mesa's Vulkan that sorts GPUs by the screen that they drive, in a process without a session of a
/// desktop: it would print `error: XDG_RUNTIME_DIR is invalid or not set in the environment.` for every list of GPUs.
///
/// Must be called before the process has other threads.
pub(crate) fn disable_device_select() {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none_or(|folder| folder.is_empty()) {
        #[expect(unsafe_code, reason = "other threads could read the environment")]
        // SAFETY: the process has one thread.
        unsafe {
            std::env::set_var("NODEVICE_SELECT", "1");
        }
    }
}
