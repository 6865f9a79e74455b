//! Load options, and the functions that load a model.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard, guard_value, prepare_process};
use super::handles;
use super::options::load::TablaLoadOptions;
use super::pointers::{path_of, read_sized, text_of};
use super::sequence::TablaModel;
use std::ffi::{CString, c_char, c_void};
use tabla::device::GpuFeatures;
use tabla::error::bail;
use tabla::load::{CpuExperts, DraftingHead, GpuSpeculation, LoadOptions, Progress, STAGES};
use tabla::op::sampler::SamplerKind;
use tabla::quant::i2_s::Layout;
use tabla::{Cancel, Model, Result, Source};

/// Disables the prefix cache: `TablaLoadOptions.prefix_bytes`.
pub const TABLA_PREFIX_NONE: u64 = u64::MAX;

/// Experts of all layers: `TablaLoadOptions.cpu_expert_layers`.
pub const TABLA_CPU_EXPERTS_ALL: u32 = u32::MAX;

impl TablaLoadOptions {
    /// Converts the options.
    ///
    /// # Safety
    ///
    /// Its pointers are NULL or C strings.
    unsafe fn options(&self) -> Result<LoadOptions> {
        if self.reserved != 0 {
            bail!(Argument, "expected reserved to be 0, got {}", self.reserved);
        }
        // SAFETY: guaranteed by the caller.
        let options = unsafe { self.plain_options() }?;
        // SAFETY: guaranteed by the caller.
        let samplers = unsafe { text_of(self.samplers, "samplers") }?;
        // SAFETY: guaranteed by the caller.
        let layout = unsafe { text_of(self.i2s_layout, "i2s_layout") }?;
        // SAFETY: guaranteed by the caller.
        let head = match (self.mtp, unsafe { path_of(self.drafter_path) }) {
            (0, None) => DraftingHead::None,
            (0, Some(path)) => DraftingHead::Eagle3(path),
            (_, None) => DraftingHead::Mtp,
            (_, Some(_)) => bail!(Argument, "only one of mtp and drafter_path can be set"),
        };
        Ok(options
            .gpu_features(match self.gpu_baseline {
                0 => GpuFeatures::default(),
                _ => GpuFeatures::Baseline,
            })
            .samplers(match self.samplers.is_null() {
                true => None,
                false => Some(SamplerKind::chain(samplers)?),
            })
            .i2s_layout(layout_of(layout)?)
            .cpu_experts(match self.cpu_expert_layers {
                0 => CpuExperts::Off,
                TABLA_CPU_EXPERTS_ALL => CpuExperts::All,
                layers => CpuExperts::First(layers),
            })
            .gpu_speculation(match self.gpu_speculation {
                0 => GpuSpeculation::Off,
                _ => GpuSpeculation::On,
            })
            .drafting_head(head)
            .prefix_bytes(match self.prefix_bytes {
                0 => None,
                TABLA_PREFIX_NONE => Some(0),
                bytes => Some(bytes),
            }))
    }
}

/// Loads a model with the default options: the short form of `tabla_model_load`. Returns NULL on
/// failure; `tabla_last_error` has the reason. `path` NULL: the small built-in story model.
/// `max_context`: context length in tokens; 0: the length that the model was trained with, at most
/// 4096.
///
/// # Safety
///
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_model(
    path: *const c_char,
    max_context: u32,
) -> *mut TablaModel {
    let options = TablaLoadOptions {
        max_context,
        ..TablaLoadOptions::DEFAULT
    };
    // SAFETY: guaranteed by the caller; the options are valid.
    unsafe { tabla_model_load(path, &raw const options) }
}

/// Loads a model with options. Returns NULL on failure; `tabla_last_error` has the reason. `path`
/// NULL: the small built-in story model. NULL options are the defaults.
///
/// # Safety
///
/// `path` is NULL or a C string; `options` is NULL or points to a struct with `struct_size` set,
/// whose pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_load(
    path: *const c_char,
    options: *const TablaLoadOptions,
) -> *mut TablaModel {
    guard_value(|| {
        prepare_process();
        // SAFETY: guaranteed by the caller.
        let source = unsafe { path_of(path) }.map_or(Source::BuiltIn, Source::Path);
        // SAFETY: guaranteed by the caller.
        unsafe { load(source, options) }
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Function that is called when the library does not read the data of a model in memory any more.
pub type TablaRelease = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Loads a model that is in memory: a GGUF file, not one of several, or a ggml file of Whisper.
/// Returns NULL on failure; `tabla_last_error` has the reason. NULL options are the defaults.
///
/// `release` NULL: the data is copied. Otherwise it is not: it must stay unchanged until the library
/// calls `release` with `user_data`, once, on any thread. It does so when the model, its sessions and
/// batches are freed and their calls have returned; before it returns NULL; for a NULL pointer, too.
/// For data that is never freed, such as an array of the program, `release` can be a function that
/// does nothing.
///
/// # Safety
///
/// `data` is NULL or points to `size` bytes, which stay valid until `release` is called; `options` is
/// NULL or points to a struct with `struct_size` set, whose pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_memory(
    data: *const c_void,
    size: usize,
    release: TablaRelease,
    user_data: *mut c_void,
    options: *const TablaLoadOptions,
) -> *mut TablaModel {
    guard_value({
        // Part of the closure, so that the data is released even if the guard does not call it.
        let owner = Owner {
            data: data.cast(),
            size,
            release,
            user_data,
        };
        move || {
            prepare_process();
            if owner.data.is_null() {
                bail!(Argument, "data is NULL");
            }
            if isize::try_from(size).is_err() {
                bail!(
                    Argument,
                    "invalid size {size}: larger than the address space"
                );
            }
            let source = match owner.release {
                Some(_) => Source::bytes(owner),
                None => Source::bytes(owner.copied()?),
            };
            // SAFETY: guaranteed by the caller.
            unsafe { load(source, options) }
        }
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Data of the caller, until it is released.
struct Owner {
    data: *const u8,
    size: usize,
    release: TablaRelease,
    user_data: *mut c_void,
}

// SAFETY: the data does not change, and the caller allows a call of `release` on any thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// Returns a copy of the data.
    fn copied(&self) -> Result<Vec<u8>> {
        let mut copy = Vec::new();
        if copy.try_reserve_exact(self.size).is_err() {
            bail!(Memory, "no memory for a copy of {} bytes", self.size);
        }
        copy.extend_from_slice(self.as_ref());
        Ok(copy)
    }
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller guarantees that the data is valid and unchanged until it is released. The
        // pointer was checked.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: guaranteed by the caller; called once.
            unsafe { release(self.user_data) };
        }
    }
}

/// Loads a model with the options of a caller.
///
/// # Safety
///
/// `options` is NULL or points to a struct with `struct_size` set, whose pointers are NULL or C
/// strings.
unsafe fn load(source: Source, options: *const TablaLoadOptions) -> Result<*mut TablaModel> {
    // SAFETY: guaranteed by the caller.
    let c_options = unsafe { read_sized(options, TablaLoadOptions::DEFAULT) }?;
    // SAFETY: guaranteed by the caller.
    let options = unsafe { c_options.options() }?;
    let cancel = Cancel::new();
    let model = Model::builder(source)
        .options(options)
        .cancel(cancel.clone())
        .on_progress(|progress| {
            if !report_progress(&c_options, progress) {
                cancel.cancel();
            }
        })
        .load()?;
    if cancel.is_pending() {
        bail!(Cancelled, "the load was stopped by the progress callback");
    }
    TablaModel::insert(model)
}

/// Frees a model and its default session, and returns at once. A running call is cancelled, and
/// stays valid until it returns. The memory is released when the last session or batch of the model
/// is freed. NULL is an error.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_free_model(model: *mut TablaModel) -> TablaStatus {
    guard(|| handles::remove(model))
}

fn layout_of(name: &str) -> Result<Layout> {
    match Layout::from_name(name) {
        Some(layout) => Ok(layout),
        None if name.is_empty() => Ok(Layout::default()),
        None => bail!(
            Argument,
            "invalid i2s_layout {name:?}: expected one of 128, 64, 1x4"
        ),
    }
}

/// Calls the progress callback. Returns whether loading continues.
fn report_progress(options: &TablaLoadOptions, progress: &Progress) -> bool {
    let Some(callback) = options.progress else {
        return true;
    };
    let name = CString::new(progress.stage.name()).unwrap_or_default();
    let milliseconds = progress.took.as_secs_f64() * 1e3;
    let done = progress.ended as f32 / STAGES as f32;
    // SAFETY: the caller's function; the name is valid during the call.
    let result = unsafe {
        callback(
            progress.stage as u32,
            name.as_ptr(),
            milliseconds,
            done,
            options.user_data,
        )
    };
    result == 0
}
