//! Activation functions, branch-free, and kernels that are compiled for each of them.

use super::{Launch, Request};
use crate::simd::{Kernel, math};
use crate::work::Split;
use tabla_core::error::{Result, bail};
use tabla_core::op::functions::Activation;

/// An activation function as a type, so that loops over it are specialized.
pub(super) trait ActivationFn {
    /// Value at `x`.
    fn of(x: f32) -> f32;
}

/// A kernel that is generic over the activation function.
pub(super) trait ActivationKernel {
    /// The kernel for `F`.
    type With<F: ActivationFn>: Kernel;
}

/// Returns the kernel for an activation index, for `dim` elements per token.
pub(super) fn link<K: ActivationKernel>(
    request: &Request<'_>,
    activation: u32,
    [dim, tokens]: [u32; 2],
) -> Result<Launch> {
    let split = Split::Rows(dim as usize);
    let Some(activation) = Activation::ALL.get(activation as usize) else {
        bail!(Internal, "unknown activation {activation}");
    };
    let launch = match activation {
        Activation::Silu => request.launch::<K::With<Silu>>(split, tokens),
        Activation::Gelu => request.launch::<K::With<Gelu>>(split, tokens),
        Activation::GeluTanh => request.launch::<K::With<GeluTanh>>(split, tokens),
        Activation::Relu2 => request.launch::<K::With<Relu2>>(split, tokens),
        Activation::Relu => request.launch::<K::With<Relu>>(split, tokens),
        Activation::Sigmoid => request.launch::<K::With<Sigmoid>>(split, tokens),
        Activation::Linear => request.launch::<K::With<Linear>>(split, tokens),
    };
    Ok(launch.single_thread_if_small(tokens as usize * dim as usize))
}

/// Returns the activation function with this index; `None` if unknown.
pub(super) fn function(activation: u32) -> Option<fn(f32) -> f32> {
    Some(match Activation::ALL.get(activation as usize)? {
        Activation::Silu => Silu::of,
        Activation::Gelu => Gelu::of,
        Activation::GeluTanh => GeluTanh::of,
        Activation::Relu2 => Relu2::of,
        Activation::Relu => Relu::of,
        Activation::Sigmoid => Sigmoid::of,
        Activation::Linear => Linear::of,
    })
}

pub(super) struct Silu;

impl ActivationFn for Silu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x / (1.0 + math::exp(-x))
    }
}

pub(super) struct Gelu;

impl ActivationFn for Gelu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x * math::normal(x)
    }
}

pub(super) struct GeluTanh;

impl ActivationFn for GeluTanh {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // (1 + tanh(u)) / 2 is sigmoid(2 u); the constants are 2 sqrt(2 / pi) and 0.044715 times
        // that.
        let double = x * (1.595_769 + 0.071_354_814 * (x * x));
        x / (1.0 + math::exp(-double))
    }
}

pub(super) struct Relu2;

impl ActivationFn for Relu2 {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        Relu::of(x) * Relu::of(x)
    }
}

pub(super) struct Relu;

impl ActivationFn for Relu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // The comparison is false for NaN, which passes through.
        if x < 0.0 { 0.0 } else { x }
    }
}

pub(super) struct Sigmoid;

impl ActivationFn for Sigmoid {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        1.0 / (1.0 + math::exp(-x))
    }
}

pub(super) struct Linear;

impl ActivationFn for Linear {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }
}
