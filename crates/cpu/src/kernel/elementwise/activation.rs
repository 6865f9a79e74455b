//! Activation functions, branch-free, and kernels that are compiled for each of them.

use super::loops::Extent;
use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses, math};
use std::marker::PhantomData;
use tabla_core::error::{Result, bail};
use tabla_core::op::functions::Activation;
use tabla_core::op::kind::OpKind;

/// An activation function as a type, so that loops over it are specialized.
pub(crate) trait ActivationFn {
    /// Value at `x`.
    fn of(x: f32) -> f32;
}

/// An operation that is one loop, compiled for each activation function.
pub(crate) trait ActivationLoop: OpKind {
    /// Returns the index of the activation function.
    fn activation(p: &Self::Params) -> u32;

    /// Returns the work for these parameters.
    fn extent(p: &Self::Params) -> Extent;

    /// Runs one thread's part. It is `#[inline(always)]`, as [`Kernel::run`].
    fn run<F: ActivationFn>(p: Self::Params, args: Args<'_>);
}

/// The kernel of an operation for an activation function.
struct With<L, F>(PhantomData<(L, F)>);

impl<L: ActivationLoop, F: ActivationFn> Kernel for With<L, F> {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(_: S, args: Args<'_>) {
        L::run::<F>(args.params(), args);
    }
}

/// Returns the kernel for the activation function of the parameters.
pub(crate) fn link<L: ActivationLoop>(request: &Request<'_>) -> Result<Launch> {
    let p: L::Params = request.params();
    let activation = L::activation(&p);
    let Some(activation) = Activation::ALL.get(activation as usize) else {
        bail!(Internal, "unknown activation {activation}");
    };
    let extent = L::extent(&p);
    Ok(match activation {
        Activation::Silu => extent.launch::<With<L, Silu>>(request),
        Activation::Gelu => extent.launch::<With<L, Gelu>>(request),
        Activation::GeluTanh => extent.launch::<With<L, GeluTanh>>(request),
        Activation::Relu2 => extent.launch::<With<L, Relu2>>(request),
        Activation::Relu => extent.launch::<With<L, Relu>>(request),
        Activation::Sigmoid => extent.launch::<With<L, Sigmoid>>(request),
        Activation::Linear => extent.launch::<With<L, Linear>>(request),
    })
}

pub(crate) struct Silu;

impl ActivationFn for Silu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x / (1.0 + math::exp(-x))
    }
}

pub(crate) struct Gelu;

impl ActivationFn for Gelu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x * math::normal(x)
    }
}

pub(crate) struct GeluTanh;

impl ActivationFn for GeluTanh {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // (1 + tanh(u)) / 2 is sigmoid(2 u); the constants are 2 sqrt(2 / pi) and 0.044715 times
        // that.
        let double = x * (1.595_769 + 0.071_354_814 * (x * x));
        x / (1.0 + math::exp(-double))
    }
}

pub(crate) struct Relu2;

impl ActivationFn for Relu2 {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        Relu::of(x) * Relu::of(x)
    }
}

pub(crate) struct Relu;

impl ActivationFn for Relu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // The comparison is false for NaN, which passes through.
        if x < 0.0 { 0.0 } else { x }
    }
}

pub(crate) struct Sigmoid;

impl ActivationFn for Sigmoid {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        1.0 / (1.0 + math::exp(-x))
    }
}

pub(crate) struct Linear;

impl ActivationFn for Linear {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }
}
