//! `y[t, offset + i] = x[t, i]` for activations and for expert ids
//!
//! A unit is a row.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use bytemuck::Pod;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::{capture, capture_ids};
use tabla_core::op::params::capture::Params;
use tabla_core::op::params::capture_ids::Params as IdsParams;

const _: () = assert!(
    capture::AT.x == capture_ids::AT.ids
        && capture::AT.y == capture_ids::AT.y
        && size_of::<Params>() == size_of::<IdsParams>(),
    "the operations share a kernel"
);

/// Captured element.
trait Element: Pod {
    /// The element as f32.
    fn number(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn number(self) -> f32 {
        self
    }
}

impl Element for u32 {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "expert ids are far below 2^24")]
    fn number(self) -> f32 {
        self as f32
    }
}

struct Capture<T>(PhantomData<T>);

impl<T: Element> Kernel for Capture<T> {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use capture::AT;
        let p: Params = args.params();
        let [dim, width, offset] = [p.dim, p.width, p.offset].map(|n| n as usize);
        let x: &[T] = bytemuck::cast_slice(args.bytes(AT.x));
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let y = &mut y.unit(t, width)[offset..][..dim];
            for (y, x) in y.iter_mut().zip(&x[t * dim..]) {
                *y = x.number();
            }
        }
    }
}

impl Link for kind::Capture {
    fn link(request: &Request<'_>) -> Result<Launch> {
        Ok(of_elements::<f32>(request))
    }
}

impl Link for kind::CaptureIds {
    fn link(request: &Request<'_>) -> Result<Launch> {
        Ok(of_elements::<u32>(request))
    }
}

fn of_elements<T: Element>(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    request.by_row::<Capture<T>>(p.tokens, p.dim)
}
