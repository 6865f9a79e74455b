//! `x[t, h, :] = rot(x[t, h, :], position)`

use super::rotation::Rotation;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::rope::AT;
use tabla_core::op::params::rope::Params;

impl Kernel for kind::Rope {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let width = p.heads as usize * p.head_dim as usize;
        let (freqs, rows) = (args.f32s(AT.freqs), args.rows(AT.state));
        let rotation = Rotation {
            head: p.head_dim as usize,
            freqs: &freqs[..p.rope_dim as usize / 2],
            half_split: p.half_split != 0,
            magnitude: p.magnitude,
        };
        let mut x = args.open::<f32>(AT.x);
        for t in args.range() {
            for angles in rotation.angles(rows[t].position) {
                rotation.rotate(&angles, x.unit(t, width));
            }
        }
    }
}

impl Link for kind::Rope {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let launch = request.launch::<Self>(Split::Rows(1), p.tokens);
        Ok(launch.single_thread_if_small([p.tokens, p.heads, p.head_dim]))
    }
}
