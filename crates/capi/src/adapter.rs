//! LoRA adapters and control vectors.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, HandleType, resolve};
use super::pointers::{path_of, slice_of, text_of};
use super::sequence::TablaModel;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::path::PathBuf;
use tabla::error::bail;
use tabla::tools::ControlVector;
use tabla::{Adapter, Result};

/// A LoRA adapter of a model. Opaque.
pub struct TablaAdapter(pub(super) Adapter);

impl HandleType for TablaAdapter {
    const NAME: &'static str = "adapter";
}

/// A control vector: a vector per layer that is added to the output of the layer. Opaque.
pub struct TablaControlVector(pub(super) ControlVector);

impl HandleType for TablaControlVector {
    const NAME: &'static str = "control vector";
}

/// Reads a LoRA adapter for a model: a folder of `peft` with `adapter_config.json` and
/// `adapter_model.safetensors`, or a GGUF file of llama.cpp. Returns NULL on failure; `tabla_last_error`
/// has the reason. `TablaHookOptions.adapters` applies it.
///
/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_adapter_load(
    model: *const TablaModel,
    path: *const c_char,
) -> *mut TablaAdapter {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { required(path) }?;
        let adapter = resolve(model)?.model().read_adapter(&path)?;
        handles::insert(TablaAdapter(adapter))
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Frees an adapter. Hooks that use it continue.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_adapter_free(adapter: *mut TablaAdapter) -> TablaStatus {
    guard(|| handles::remove(adapter))
}

/// Reads a control vector: a GGUF file of llama.cpp, or an .npy file `[layers, dim]`. Returns NULL on
/// failure; `tabla_last_error` has the reason. `TablaHookOptions.steers` applies it.
///
/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_control_vector_load(path: *const c_char) -> *mut TablaControlVector {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { required(path) }?;
        handles::insert(TablaControlVector(ControlVector::read(&path)?))
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Creates a control vector from `count` vectors of `dim` numbers, one after another, for the layers of
/// `layers`, counted from 0. Returns NULL on failure; `tabla_last_error` has the reason. `model_hint` is
/// the architecture of the model, or NULL.
///
/// # Safety
///
/// `layers` points to `count` numbers, `vectors` to `count` times `dim` floats; `model_hint` is NULL or a
/// C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_control_vector_new(
    model_hint: *const c_char,
    layers: *const u32,
    count: usize,
    vectors: *const f32,
    dim: usize,
) -> *mut TablaControlVector {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let model_hint = unsafe { text_of(model_hint, "model_hint") }?.to_string();
        // SAFETY: guaranteed by the caller.
        let layers = unsafe { slice_of(layers, count, "layers") }?;
        let Some(numbers) = count.checked_mul(dim).filter(|numbers| *numbers > 0) else {
            bail!(Argument, "expected vectors, got {count} of {dim} numbers");
        };
        // SAFETY: guaranteed by the caller.
        let vectors = unsafe { slice_of(vectors, numbers, "vectors") }?;
        let vectors = vectors.chunks_exact(dim).map(<[f32]>::to_vec);
        let layers: BTreeMap<u32, Vec<f32>> = layers.iter().copied().zip(vectors).collect();
        if layers.len() < count {
            bail!(Argument, "layers has a layer twice");
        }
        handles::insert(TablaControlVector(ControlVector { model_hint, layers }))
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Writes a control vector: an .npy file if the name ends in ".npy", otherwise a GGUF file of
/// llama.cpp, which cannot have a vector of layer 0. The file replaces an existing one when it is
/// complete.
///
/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_control_vector_save(
    vector: *const TablaControlVector,
    path: *const c_char,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { required(path) }?;
        resolve(vector)?.0.write(&path)
    })
}

/// Frees a control vector. Hooks that use it continue.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_control_vector_free(vector: *mut TablaControlVector) -> TablaStatus {
    guard(|| handles::remove(vector))
}

/// Reads a path that must not be NULL.
///
/// # Safety
///
/// `path` is NULL or a C string.
unsafe fn required(path: *const c_char) -> Result<PathBuf> {
    // SAFETY: guaranteed by the caller.
    match unsafe { path_of(path) } {
        Some(path) => Ok(path),
        None => bail!(Argument, "path is NULL"),
    }
}
