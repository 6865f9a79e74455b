//! Callback of the progress of loading.

use std::ffi::{c_char, c_void};

/// Called at the end of each of the 18 stages of loading, in order. Receives the number and name of
/// the stage, its duration, and the fraction of completed stages (0 to 1). Return 0 to continue;
/// any other value cancels the load with `TABLA_ERROR_CANCELLED`.
pub type TablaProgressCallback = Option<
    unsafe extern "C" fn(
        stage: u32,
        name: *const c_char,
        milliseconds: f64,
        done: f32,
        user_data: *mut c_void,
    ) -> i32,
>;
