//! Loss of the GPU during generation, as seen by a caller of the C ABI.
#![expect(unsafe_code, reason = "exported functions take pointers")]

use super::answer::tabla_generate;
use super::answer_piece::{TablaStats, TablaTokenCallback};
use super::guard::{TABLA_OK, tabla_last_error};
use super::load::tabla_free_model;
use super::options::generate::TablaGenerateOptions;
use super::sequence::TablaModel;
use super::session::{
    TABLA_LOGITS_LAST, tabla_model_session, tabla_prefill, tabla_session_free,
    tabla_session_logits, tabla_session_move, tabla_session_new, tabla_session_prefill,
    tabla_session_step, tabla_session_tokens, tabla_session_truncate,
};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use tabla::device::Replay;
use tabla::exec::gpu::Device;
use tabla::load::{DeviceChoice, LoadOptions, devices};
use tabla::{ErrorKind, Model, Source};

const LOST: i32 = ErrorKind::DeviceLost as i32;

/// Loads a model on its own GPU device, and returns both.
fn loaded(replay: Replay) -> (*mut TablaModel, Device) {
    let options = LoadOptions::default()
        .device(DeviceChoice::Gpu)
        .replay(replay)
        // Longer than the number of tokens that the model generates ahead of the callback.
        .max_context(1024);
    let model = Model::builder(Source::BuiltIn)
        .options(options)
        .load()
        .expect("model loads");
    let gpu = model.gpu().expect("model is on a GPU");
    (
        TablaModel::insert(model).expect("handle table is not full"),
        gpu,
    )
}

/// Token callback that destroys the device that `gpu` points to.
unsafe extern "C" fn lose(_: u32, _: *const c_char, _: usize, gpu: *mut c_void) -> i32 {
    // SAFETY: `gpu` points to the test's device, which outlives the generation.
    unsafe { gpu.cast::<Device>().as_ref() }
        .expect("gpu is not NULL")
        .destroy();
    0
}

fn generate(model: *mut TablaModel, gpu: Option<&mut Device>, stats: &mut TablaStats) -> i32 {
    let options = TablaGenerateOptions {
        // With a device to lose, many more than the model generates ahead of the callback.
        max_tokens: if gpu.is_some() { 900 } else { 8 },
        burst: 2,
        ..TablaGenerateOptions::DEFAULT
    };
    let callback: TablaTokenCallback = gpu.is_some().then_some(lose);
    let user_data = gpu.map_or(null_mut(), |gpu| std::ptr::from_mut(gpu).cast());
    let prompt = c"Once upon a time".as_ptr();
    // SAFETY: all pointers are valid during the call.
    unsafe {
        tabla_generate(
            model,
            prompt,
            &raw const options,
            callback,
            user_data,
            stats,
        )
    }
}

#[test]
fn lost_gpu_fails_every_call_until_the_model_is_reloaded() {
    lose_and_reload(Replay::Auto);
}

#[test]
fn lost_gpu_with_encoded_replay_fails_every_call_until_the_model_is_reloaded() {
    lose_and_reload(Replay::Encoded);
}

fn lose_and_reload(replay: Replay) {
    if devices().expect("a CPU").gpus.is_empty() {
        // The kernel tests report a missing GPU.
        return;
    }
    let (model, mut gpu) = loaded(replay);
    let own = tabla_session_new(model);
    // SAFETY: the pointer is valid during the call.
    let status = unsafe { tabla_session_prefill(own, [1, 40, 77].as_ptr(), 3) };
    assert_eq!(status, TABLA_OK);
    let mut stats = TablaStats::EMPTY;
    assert_eq!(generate(model, Some(&mut gpu), &mut stats), LOST);
    // SAFETY: the pointer is to a C string that is valid until the next call on this thread.
    let text = unsafe { CStr::from_ptr(tabla_last_error()) };
    assert!(text.to_string_lossy().contains("load the model again"));
    assert_eq!(
        stats.prompt_tokens, 0,
        "results are written only on success"
    );

    let session = tabla_model_session(model);
    let (mut token, mut count, mut logits) = (0, 0, vec![0f32; 1 << 16]);
    // SAFETY: all pointers are valid during the call.
    let status = unsafe { tabla_session_step(session, null(), &raw mut token) };
    assert_eq!(status, LOST);
    let (capacity, out) = (logits.len(), logits.as_mut_ptr());
    // SAFETY: as above.
    let status =
        unsafe { tabla_session_logits(session, TABLA_LOGITS_LAST, out, capacity, &raw mut count) };
    assert_eq!(status, LOST);
    // SAFETY: as above.
    assert_eq!(unsafe { tabla_prefill(model, [5].as_ptr(), 1) }, LOST);
    assert_eq!(
        tabla_session_truncate(session, 0),
        TABLA_OK,
        "truncation does not use the GPU"
    );
    assert_eq!(generate(model, None, &mut stats), LOST);
    // A session moves to the next load with its tokens.
    // SAFETY: all pointers are valid during the call.
    let status = unsafe { tabla_session_prefill(own, [5, 6].as_ptr(), 2) };
    assert_eq!(status, LOST);
    assert_eq!(tabla_session_move(own, model), TABLA_OK, "the same load");
    let (again, _) = loaded(replay);
    assert_eq!(tabla_session_move(own, again), TABLA_OK);
    assert_eq!(tabla_free_model(model), TABLA_OK);
    // SAFETY: as above.
    let status = unsafe { tabla_session_step(own, null(), &raw mut token) };
    assert_eq!(status, TABLA_OK);
    // SAFETY: as above.
    let status = unsafe { tabla_session_tokens(own, null_mut(), 0, &raw mut count) };
    assert_eq!(
        (status, count),
        (TABLA_OK, 4),
        "three tokens and the sampled one"
    );
    assert_eq!(tabla_session_free(own), TABLA_OK);

    assert_eq!(generate(again, None, &mut stats), TABLA_OK);
    assert!(stats.tokens > 0);
    assert_eq!(tabla_free_model(again), TABLA_OK);
}
