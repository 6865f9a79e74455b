//! Tests of every GPU kernel against its formula in f64 with odd shapes, and of the executor: bursts,
//! errors, device loss.
//!
//! Runs on any adapter, including software (lavapipe). Without an adapter the tests are skipped with a
//! message, or fail with `TABLA_REQUIRE_GPU=1`.

#![expect(clippy::unwrap_used, reason = "checks panic on errors")]

mod added_tables;
mod attention;
mod bits;
mod dawn;
mod executor;
mod experts;
#[cfg(target_os = "linux")]
mod faults;
mod fixture;
mod forward;
mod loss;
mod operations;
mod probe;
mod recovery;
mod samplers;
mod sampling;
mod split_weights;
mod types;

use crate::common::{exhaustive, is_gpu_slow};
use attention::{attention, rope, rope_kv, self_attention};
use bits::{bit_mat, bit_mat_add, bit_quantize};
use executor::{burst, copies, no_active_rows, read_write, too_large};
use experts::{attention_rows, batch_invariance, grouping, router_ties};
use forward::{gated, gemm_bits, gemv_tail, nan_stays, small, wide_grid};
use operations::changed_operands;
use samplers::{logprobs, mirostat_mu, odd_logits, orders, tails};
use sampling::{advance, argmax, gumbel, min_p, penalize, rows, temper, top_k, top_p};
use std::io::Write as _;
use tabla::ErrorKind;
use tabla::device::{GpuFeatures, KernelVariant, Replay};
use tabla::exec::gpu::{self, Device, DeviceOptions};
use tabla::op::list::Op;
use tabla::op::params::KERNELS;
use types::{few_types, types, types_shortly, types_with_variant};

/// A check returns its maximum error, relative to the largest element of the result.
type Check = fn(&Device) -> f64;

/// Checks of more than the cases of an operation.
const CHECKS: &[(&str, Check)] = &[
    ("changed operands", changed_operands),
    ("gemv next to NaN", gemv_tail),
    ("NaN", nan_stays),
    ("gated activations", gated),
    ("gemm, same bits in any batch", gemm_bits),
    ("grids with a z dimension", wide_grid),
    ("bit_quantize", bit_quantize),
    ("bit_mat", bit_mat),
    ("bit_mat_add", bit_mat_add),
    ("ties in the router", router_ties),
    ("experts, same bits in any batch", batch_invariance),
    ("order of pairs of experts", grouping),
    ("rope_kv", rope_kv),
    ("rope", rope),
    ("penalize", penalize),
    ("mirostat_mu", mirostat_mu),
    ("logprobs", logprobs),
    ("sampling stages", tails),
    ("sampler orders", orders),
    ("top_k", top_k),
    ("top_p", top_p),
    ("min_p", min_p),
    ("temper", temper),
    ("gumbel", gumbel),
    ("samplers of several rows", rows),
    ("argmax", argmax),
    ("advance", advance),
    ("burst", burst),
    ("copies", copies),
    ("no active rows", no_active_rows),
    ("read and write", read_write),
    ("too large", too_large),
];

/// Checks of the operations with more than one exact kernel variant besides the base kernel.
const ATTENTION: &[(&str, Check)] = &[
    ("attention", attention),
    ("self_attention", self_attention),
    ("attention, same bits for each token", attention_rows),
];

/// The operations of [`ATTENTION`].
const ATTENTION_OPS: &[Op] = &[
    Op::Attention,
    Op::SelfAttention,
    Op::AttendPart,
    Op::AttendJoin,
];

/// Returns the checks that take long with base kernels.
fn long_checks() -> [(&'static str, Check); 2] {
    [
        types_check(types_shortly),
        ("samplers over odd logits", odd_logits),
    ]
}

/// Returns the check of weights of every type: `short`, except in exhaustive runs.
fn types_check(short: Check) -> (&'static str, Check) {
    let check = if exhaustive() { types } else { short };
    ("weights of every type", check)
}

/// Returns options for any adapter, with the kernel variants that compute in f32.
fn software() -> DeviceOptions {
    DeviceOptions::default().allow_software(true).variants(
        KernelVariant::ALL
            .iter()
            .copied()
            .filter(|f| f.exact())
            .collect::<Vec<_>>(),
    )
}

fn log(line: std::fmt::Arguments<'_>) {
    writeln!(std::io::stderr(), "gpu: {line}").expect("stderr is open");
}

/// Opens a device per replay mode that the adapter supports; empty, with a message, without an adapter.
fn devices(options: &DeviceOptions, cases: usize) -> Vec<Device> {
    let open = |replay| {
        let options = options.clone();
        gpu::open(&options.replay(replay))
    };
    let Some(encoded) = open(Replay::Encoded).expect("open the device") else {
        let required = std::env::var("TABLA_REQUIRE_GPU").is_ok_and(|v| v == "1");
        assert!(!required, "0 adapters, and TABLA_REQUIRE_GPU=1");
        log(format_args!("0 ADAPTERS: {cases} GPU CASES SKIPPED"));
        return vec![];
    };
    if encoded.profile().backend != "vulkan" {
        let error = open(Replay::Recorded).expect_err("recorded replay requires Vulkan");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        return vec![encoded];
    }
    let recorded = open(Replay::Recorded).expect("recorded replay on Vulkan");
    vec![encoded, recorded.expect("the same adapter")]
}

/// Opens a device, with recorded replay if supported.
fn device(cases: usize) -> Option<Device> {
    devices(&software(), cases).pop()
}

/// Runs checks on all devices; the errors must be the same with every replay mode.
fn run_checks(devices: &[Device], checks: &[(&str, Check)]) {
    for profile in devices.iter().map(Device::profile) {
        log(format_args!("{profile}, variants {:?}", profile.variants));
    }
    for (name, check) in checks {
        let errors: Vec<f64> = devices.iter().map(check).collect();
        for error in &errors {
            log(format_args!("{name}: error {error:.1e}"));
            assert_eq!(*error, errors[0], "{name}: encoded and recorded");
        }
    }
}

/// Runs all cases of operations on all devices.
fn run_cases<'a>(devices: &[Device], ops: impl Iterator<Item = &'a Op>) {
    for op in ops {
        let errors: Vec<f32> = devices
            .iter()
            .map(|on| operations::check(on, *op))
            .collect();
        for error in &errors {
            log(format_args!("{}: error {error:.1e}", op.name()));
            assert_eq!(*error, errors[0], "{}: encoded and recorded", op.name());
        }
    }
}

/// Tests the best kernels of the device with recorded replay; with both replay modes in an exhaustive
/// run.
#[test]
fn kernels_match_their_formulas() {
    let devices = devices(&software(), Op::ALL.len() + CHECKS.len());
    let first = if exhaustive() {
        0
    } else {
        devices.len().saturating_sub(1)
    };
    run_cases(&devices[first..], Op::ALL.iter());
    for checks in [CHECKS, ATTENTION, &long_checks()] {
        run_checks(&devices[first..], checks);
    }
}

#[test]
fn base_kernels_run_within_webgpu_limits() {
    let options = software().features(GpuFeatures::Baseline).variants(vec![]);
    let devices = devices(&options, 0);
    for profile in devices.iter().map(Device::profile) {
        assert_eq!(profile.variants, []);
        assert_eq!(
            (profile.binding_bytes_max, profile.bindings_max),
            (128 << 20, 8)
        );
    }
    // The other tests use recorded replay.
    let long = if !is_gpu_slow() {
        long_checks().to_vec()
    } else {
        vec![("weights of some types", few_types as Check)]
    };
    let first = &devices[..devices.len().min(1)];
    let ops = Op::ALL.iter();
    run_cases(first, ops.filter(|op| !is_gpu_slow() || has_variants(**op)));
    for checks in [CHECKS, ATTENTION, &long] {
        run_checks(first, checks);
    }
}

/// Returns whether an operation has kernels besides the base kernel.
fn has_variants(op: Op) -> bool {
    let mut rows = KERNELS.iter().filter(|row| row.op == op);
    rows.any(|row| row.variant.is_some())
}

/// A device with all variants runs only the best one of each kernel; this tests the others, with one
/// replay mode. Operations other than attention run only in an exhaustive run.
#[test]
fn each_kernel_variant_matches_its_formula() {
    let Some(all) = device(CHECKS.len()) else {
        return;
    };
    let all = all.profile();
    for &variant in KernelVariant::ALL.iter().filter(|f| f.exact()) {
        let alone = vec![variant];
        if !all.variants.contains(&variant) {
            log(format_args!(
                "{variant:?}: SKIPPED, not supported by the adapter"
            ));
        } else if all.variants != alone {
            let options = software().variants(alone);
            let device = devices(&options, 0).pop().expect("the same adapter");
            let rest = if exhaustive() {
                [CHECKS, &long_checks()].concat()
            } else {
                vec![]
            };
            let devices = [device];
            run_cases(&devices, ATTENTION_OPS.iter());
            run_checks(&devices, ATTENTION);
            run_checks(&devices, &rest);
        }
    }
}

/// Activations that int8 represents exactly give the results of f32.
#[test]
fn int8_kernels_match_f32_on_representable_activations() {
    variant_alone(KernelVariant::Int8);
}

/// Activations that f16 represents exactly give the results of weights in f16.
#[test]
fn matrix_kernels_match_f32_on_representable_activations() {
    variant_alone(KernelVariant::Matrix8);
    variant_alone(KernelVariant::Matrix16);
    variant_alone(KernelVariant::LargeMatrix8);
    variant_alone(KernelVariant::LargeMatrix16);
}

/// As the test of int8 kernels, for products of two to eight tokens, and those in f32.
#[test]
fn kernels_of_few_tokens_match_f32_on_representable_activations() {
    variant_alone(KernelVariant::Few);
    variant_alone(KernelVariant::FewInt8);
}

fn variant_alone(variant: KernelVariant) {
    let options = software().variants(vec![variant]);
    let Some(device) = devices(&options, 7).pop() else {
        return;
    };
    if device.profile().variants != [variant] {
        log(format_args!(
            "{variant:?}: SKIPPED, not supported by the adapter"
        ));
        return;
    }
    let checks: [(&str, Check); 7] = [
        ("small activations", small),
        ("gated activations", gated),
        types_check(types_with_variant),
        ("gemm, same bits in any batch", gemm_bits),
        ("experts", batch_invariance),
        ("attention, same bits for each token", attention_rows),
        ("NaN", nan_stays),
    ];
    for (name, check) in checks {
        let error = check(&device);
        log(format_args!("{variant:?}, {name}: error {error:.1e}"));
    }
}

/// Every variant is either exact or has a test of its own.
#[test]
fn inexact_variants_are_tested() {
    let inexact = KernelVariant::ALL.iter().filter(|variant| !variant.exact());
    let tested = [
        KernelVariant::Int8,
        KernelVariant::FewInt8,
        KernelVariant::Matrix8,
        KernelVariant::LargeMatrix8,
        KernelVariant::Matrix16,
        KernelVariant::LargeMatrix16,
    ];
    assert!(inexact.eq(&tested), "a variant without a test");
}
