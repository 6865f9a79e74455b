//! The activations, each without branches, and the kernels that are compiled for every one.

use super::{Launch, Request};
use crate::simd::{Kernel, math};
use crate::work::Split;
use tabla_core::error::{Result, bail};
use tabla_core::op::builder::Activation;

/// An activation as a type, so that a loop over it has no choice left.
pub(super) trait Function {
    /// Its value at `x`.
    fn of(x: f32) -> f32;
}

/// A kernel for each activation.
pub(super) trait Family {
    /// The one for `F`.
    type With<F: Function>: Kernel;
}

/// The kernel of the activation with this number, on `dim` numbers of every token.
pub(super) fn link<K: Family>(
    request: &Request<'_>,
    activation: u32,
    [dim, tokens]: [u32; 2],
) -> Result<Launch> {
    let split = Split::Rows(dim as usize);
    let Some(activation) = Activation::ALL.get(activation as usize) else {
        bail!(Internal, "activation {activation} is unknown");
    };
    let launch = match activation {
        Activation::Silu => request.launch::<K::With<Silu>>(split, tokens),
        Activation::Gelu => request.launch::<K::With<Gelu>>(split, tokens),
        Activation::GeluTanh => request.launch::<K::With<GeluTanh>>(split, tokens),
        Activation::Relu2 => request.launch::<K::With<Relu2>>(split, tokens),
        Activation::Relu => request.launch::<K::With<Relu>>(split, tokens),
    };
    Ok(launch.of_elements(tokens as usize * dim as usize))
}

/// The activation with this number; `None` for one that is unknown.
pub(super) fn function(activation: u32) -> Option<fn(f32) -> f32> {
    Some(match Activation::ALL.get(activation as usize)? {
        Activation::Silu => Silu::of,
        Activation::Gelu => Gelu::of,
        Activation::GeluTanh => GeluTanh::of,
        Activation::Relu2 => Relu2::of,
        Activation::Relu => Relu::of,
    })
}

pub(super) struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x / (1.0 + math::exp(-x))
    }
}

pub(super) struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x * math::normal(x)
    }
}

pub(super) struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // (1 + tanh(u)) / 2 is sigmoid(2 u); the factors are 2 sqrt(2 / pi) and 0.044715 of it.
        let double = x * (1.595_769 + 0.071_354_814 * (x * x));
        x / (1.0 + math::exp(-double))
    }
}

pub(super) struct Relu2;

impl Function for Relu2 {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        Relu::of(x) * Relu::of(x)
    }
}

pub(super) struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // The comparison lets a NaN pass.
        if x < 0.0 { 0.0 } else { x }
    }
}
