//! A GPU that goes away in the middle of a generation, as a caller of the C ABI meets it.
#![expect(unsafe_code, reason = "exported functions take pointers")]

use super::answer_piece::{TablaStats, TablaTokenCallback};
use super::generate::TablaGenerateOptions;
use super::guard::{TABLA_OK, tabla_last_error};
use super::handles::insert;
use super::model::{
    tabla_free_model, tabla_generate, tabla_logits, tabla_prefill, tabla_reset, tabla_step,
};
use super::sequence::TablaModel;
use super::session::TABLA_LOGITS_LAST;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use tabla::device::Replay;
use tabla::error::ErrorKind;
use tabla::exec::gpu::Device;
use tabla::load;
use tabla::{DeviceChoice, LoadOptions, Source, devices};

const LOST: i32 = ErrorKind::DeviceLost as i32;

/// A model on a GPU of its own, and that GPU.
fn loaded(replay: Replay) -> (*mut TablaModel, Device) {
    let options = LoadOptions {
        device: DeviceChoice::Gpu,
        replay,
        // Longer than what the model picks ahead of who hears it.
        context: 1024,
        ..LoadOptions::default()
    };
    let model = load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
    let gpu = model.gpu().expect("it is on one");
    (insert(TablaModel::new(model)).expect("there is room"), gpu)
}

/// Loses the GPU that `gpu` points to.
unsafe extern "C" fn lose(_: u32, _: *const c_char, _: usize, gpu: *mut c_void) -> i32 {
    // SAFETY: it points to the test's device, which outlives the generation.
    unsafe { gpu.cast::<Device>().as_ref() }
        .expect("it is there")
        .destroy();
    0
}

fn generate(model: *mut TablaModel, gpu: Option<&mut Device>, stats: &mut TablaStats) -> i32 {
    let options = TablaGenerateOptions {
        max_tokens: 900,
        chain: 2,
        ..TablaGenerateOptions::defaults()
    };
    let callback: TablaTokenCallback = gpu.is_some().then_some(lose);
    let user_data = gpu.map_or(null_mut(), |gpu| std::ptr::from_mut(gpu).cast());
    let prompt = c"Once upon a time".as_ptr();
    // SAFETY: all pointers are to what lives through the call.
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
fn a_lost_gpu_is_a_code_from_every_call_until_the_model_is_loaded_anew() {
    if devices().expect("a CPU").gpus.is_empty() {
        // The tests of kernels say loudly that there is none.
        return;
    }
    for replay in [Replay::Auto, Replay::Encoded] {
        lose_and_load_anew(replay);
    }
}

fn lose_and_load_anew(replay: Replay) {
    let (model, mut gpu) = loaded(replay);
    let mut stats = TablaStats::EMPTY;
    assert_eq!(generate(model, Some(&mut gpu), &mut stats), LOST);
    // SAFETY: the pointer is of a C string that this thread keeps until its next call.
    let text = unsafe { CStr::from_ptr(tabla_last_error()) };
    assert!(text.to_string_lossy().contains("load the model again"));
    assert_eq!(
        stats.prompt_tokens, 0,
        "results are written on success only"
    );

    let (mut token, mut count, mut logits) = (0, 0, vec![0f32; 1 << 16]);
    // SAFETY: all pointers are to what lives through the call.
    assert_eq!(unsafe { tabla_step(model, null(), &raw mut token) }, LOST);
    let (room, out) = (logits.len(), logits.as_mut_ptr());
    // SAFETY: as above.
    let status = unsafe { tabla_logits(model, TABLA_LOGITS_LAST, out, room, &raw mut count) };
    assert_eq!(status, LOST);
    // SAFETY: as above.
    assert_eq!(unsafe { tabla_prefill(model, [5].as_ptr(), 1) }, LOST);
    assert_eq!(tabla_reset(model), TABLA_OK, "that is the host's alone");
    assert_eq!(generate(model, None, &mut stats), LOST);
    assert_eq!(tabla_free_model(model), TABLA_OK);

    let (model, _) = loaded(replay);
    assert_eq!(generate(model, None, &mut stats), TABLA_OK);
    assert!(stats.tokens > 0);
    assert_eq!(tabla_free_model(model), TABLA_OK);
}
