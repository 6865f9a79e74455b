//! Every kernel of the GPU against its formula in f64, over odd shapes; and what the executor
//! promises beside: chains, errors, a lost device.
//!
//! Runs on any adapter, software too (lavapipe). Without one it skips loudly, or fails where
//! `TABLA_REQUIRE_GPU=1`.

#![expect(clippy::unwrap_used, reason = "a check ends where something is amiss")]

mod attention;
mod bits;
mod elementwise;
mod executor;
mod experts;
mod forward;
mod loss;
mod parts;
mod pick;
mod probe;
mod rig;
mod samplers;
mod types;

use crate::common::exhaustive;
use attention::{attention, rope, rope_kv, self_attention};
use bits::{bit_mat, bit_mat_add, bit_quantize};
use elementwise::{
    activate, add, columns, embed_add, glu, layer_norm, mul, scale, soft_cap, unit_norm,
};
use executor::{chain, copies, dead, read_write, too_large};
use experts::{
    attend_join, attend_part, attention_cases, combine, company, experts, gemv_glu, gemv_norm,
    group_by_expert, grouped_gemm, route,
};
use forward::{
    add_bias, embed, gemm, gemm_bits, gemv, gemv_tail, last_row, nan_stays, rms_norm, small,
    wide_grid,
};
use pick::{advance, argmax, gumbel, min_p, penalize, rows, temper, top_k, top_p};
use samplers::{
    bias, dry, dynamic_temper, log_probs, mask, mirostat, mirostat_mu, odd_logits, orders,
    penalties, tails, top_n_sigma, typical, xtc,
};
use std::io::Write as _;
use tabla::device::{GpuFeatures, KernelVariant, Replay};
use tabla::error::ErrorKind;
use tabla::exec::gpu::{self, Device, Options};
use types::{types, types_shortly};

/// A check gives the greatest error it found, relative to the largest number of the result.
type Check = fn(&Device) -> f64;

const CHECKS: &[(&str, Check)] = &[
    ("embed", embed),
    ("embed_add", embed_add),
    ("rms_norm", rms_norm),
    ("unit_norm", unit_norm),
    ("layer_norm", layer_norm),
    ("gemv", gemv),
    ("gemv beside NaN", gemv_tail),
    ("what is no number", nan_stays),
    ("gemv_norm", gemv_norm),
    ("gemv_glu, stored and added", gemv_glu),
    ("gemm", gemm),
    ("weights of every type", types),
    ("gemm, the same bits in any company", gemm_bits),
    ("grids that go on in z", wide_grid),
    ("bit_quantize", bit_quantize),
    ("bit_mat", bit_mat),
    ("bit_mat_add", bit_mat_add),
    ("route", route),
    ("experts", experts),
    ("group_by_expert", group_by_expert),
    ("grouped_gemm", grouped_gemm),
    ("combine", combine),
    ("add_bias", add_bias),
    ("rope_kv", rope_kv),
    ("rope", rope),
    ("attention", attention),
    ("attention, every case", attention_cases),
    ("attend_part", attend_part),
    ("attend_join", attend_join),
    ("glu", glu),
    ("activate", activate),
    ("add", add),
    ("scale", scale),
    ("mul", mul),
    ("soft_cap", soft_cap),
    ("columns", columns),
    ("self_attention", self_attention),
    ("last_row", last_row),
    ("bias", bias),
    ("mask", mask),
    ("penalize", penalize),
    ("penalties of all kinds", penalties),
    ("dry", dry),
    ("top_n_sigma", top_n_sigma),
    ("typical", typical),
    ("xtc", xtc),
    ("dynamic_temper", dynamic_temper),
    ("mirostat", mirostat),
    ("mirostat_mu", mirostat_mu),
    ("log_probs", log_probs),
    ("samplers over odd logits", odd_logits),
    ("tails", tails),
    ("orders of samplers", orders),
    ("top_k", top_k),
    ("top_p", top_p),
    ("min_p", min_p),
    ("temper", temper),
    ("gumbel", gumbel),
    ("rows of samplers", rows),
    ("argmax", argmax),
    ("advance", advance),
    ("chain", chain),
    ("copies", copies),
    ("a dead state", dead),
    ("read and write", read_write),
    ("too large", too_large),
];

/// An adapter that may be software, with kernels that compute in f32.
fn software() -> Options {
    Options {
        allow_software: true,
        variants: Some(
            KernelVariant::ALL
                .iter()
                .copied()
                .filter(|f| f.exact())
                .collect(),
        ),
        ..Options::default()
    }
}

fn say(line: std::fmt::Arguments<'_>) {
    writeln!(std::io::stderr(), "gpu: {line}").expect("stderr is open");
}

/// A device for each way of replaying that the adapter has; none after saying what is skipped.
fn devices(options: &Options, cases: usize) -> Vec<Device> {
    let open = |replay| {
        let options = options.clone();
        gpu::open(&Options { replay, ..options })
    };
    let Some(encoded) = open(Replay::Encoded).expect("the driver opens its device") else {
        let required = std::env::var("TABLA_REQUIRE_GPU").is_ok_and(|v| v == "1");
        assert!(!required, "0 adapters, and TABLA_REQUIRE_GPU=1");
        say(format_args!("0 ADAPTERS: {cases} GPU CASES SKIPPED"));
        return vec![];
    };
    if encoded.profile().backend != "vulkan" {
        let error = open(Replay::Recorded).expect_err("recorded replay is for Vulkan");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        return vec![encoded];
    }
    let recorded = open(Replay::Recorded).expect("Vulkan records");
    vec![encoded, recorded.expect("it was there before")]
}

/// The device, which records where it can.
fn device(cases: usize) -> Option<Device> {
    devices(&software(), cases).pop()
}

/// Some checks, and the same errors however tables are replayed.
fn follow_their_formulas(devices: &[Device], checks: &[(&str, Check)]) {
    for profile in devices.iter().map(Device::profile) {
        say(format_args!("{profile}, forms {:?}", profile.forms));
    }
    for (name, check) in checks {
        let errors: Vec<f64> = devices.iter().map(check).collect();
        for error in &errors {
            say(format_args!("{name}: error {error:.1e}"));
            assert_eq!(*error, errors[0], "{name}: encoded and recorded");
        }
    }
}

/// The best kernels of the device, replayed from recorded command buffers; both ways of replay in an
/// exhaustive run.
#[test]
fn kernels_follow_their_formulas() {
    let devices = devices(&software(), CHECKS.len());
    let first = if exhaustive() {
        0
    } else {
        devices.len().saturating_sub(1)
    };
    follow_their_formulas(&devices[first..], CHECKS);
}

#[test]
fn plain_kernels_within_the_limits_of_webgpu() {
    let options = Options {
        features: GpuFeatures::Baseline,
        variants: Some(vec![]),
        ..software()
    };
    let devices = devices(&options, 0);
    for profile in devices.iter().map(Device::profile) {
        assert_eq!(profile.forms, []);
        assert_eq!(
            (profile.binding_bytes_max, profile.bindings_max),
            (128 << 20, 8)
        );
    }
    // The others replay recorded ones.
    if let Some(device) = devices.first() {
        follow_their_formulas(std::slice::from_ref(device), CHECKS);
    }
}

/// The device that has all forms runs the best of each kernel's; here come the others, replayed one way.
/// Only attention has more than one exact form besides the plain one, so that the other operations are
/// repeated in an exhaustive run only.
#[test]
fn each_form_of_a_kernel_alone() {
    let Some(all) = device(CHECKS.len()) else {
        return;
    };
    let all = all.profile();
    for &form in KernelVariant::ALL.iter().filter(|f| f.exact()) {
        let alone = vec![form];
        if !all.forms.contains(&form) {
            say(format_args!("{form:?}: SKIPPED, the adapter lacks it"));
        } else if all.forms != alone {
            let options = Options {
                variants: Some(alone),
                ..software()
            };
            let device = devices(&options, 0).pop().expect("it was there before");
            let attention = |(name, _): &&(&str, Check)| name.starts_with("atten");
            let checks = CHECKS
                .iter()
                .filter(|check| exhaustive() || attention(check));
            let checks: Vec<_> = checks.copied().collect();
            follow_their_formulas(&[device], &checks);
        }
    }
}

/// Activations that int8 and f16 hold as they are give what f32 gives.
#[test]
fn products_in_other_numbers() {
    let inexact = KernelVariant::ALL
        .iter()
        .copied()
        .filter(|form| !form.exact());
    for form in inexact {
        let options = Options {
            variants: Some(vec![form]),
            ..software()
        };
        let Some(device) = devices(&options, 5).pop() else {
            return;
        };
        if device.profile().forms != [form] {
            say(format_args!("{form:?}: SKIPPED, the adapter lacks it"));
            continue;
        }
        let checks: [(&str, Check); 5] = [
            ("small activations", small),
            ("weights of every type", types_shortly),
            ("gemm, the same bits in any company", gemm_bits),
            ("experts", company),
            ("what is no number", nan_stays),
        ];
        for (name, check) in checks {
            let error = check(&device);
            say(format_args!("{form:?}, {name}: error {error:.1e}"));
        }
    }
}
