//! `y[t, i] = x[t, i] + bias(i)`, and -inf where `i` is a stop token and the position is before
//! `stop_from`

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::bias::AT;
use tabla_core::op::params::Bias;
use tabla_core::op::params::bias::Params;

/// Logits per unit.
const SEGMENT: usize = 4096;

impl Kernel for kind::Bias {
    /// A unit is a segment of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [vocab, capacity] = [p.vocab, p.capacity].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let biases: &[Bias] = bytemuck::cast_slice(args.bytes(AT.biases));
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let each = vocab.div_ceil(SEGMENT);
        let mut out = args.open::<f32>(AT.y);
        for unit in args.units() {
            let (t, start) = (unit / each, unit % each * SEGMENT);
            let row = rows[t];
            let sampler = &samplers[row.sequence as usize];
            let y = out.segment(unit, [vocab, SEGMENT]);
            y.copy_from_slice(&x[t * vocab + start..][..y.len()]);
            let mut add = |token: u32, bias: f32| {
                let at = (token as usize).checked_sub(start);
                if let Some(y) = at.and_then(|at| y.get_mut(at)) {
                    *y += bias;
                }
            };
            let count = capacity.min(sampler.bias_count as usize);
            for bias in &biases[row.sequence as usize * capacity..][..count] {
                add(bias.token, bias.bias);
            }
            if row.position.wrapping_add(1) < sampler.stop_from {
                let count = sampler.stops.len().min(sampler.stop_count as usize);
                for stop in &sampler.stops[..count] {
                    add(*stop, f32::NEG_INFINITY);
                }
            }
        }
    }
}

impl Link for kind::Bias {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_segment::<Self>(p.tokens, p.vocab, SEGMENT))
    }
}
