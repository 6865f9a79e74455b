//! `y[t, i] /= temperature`

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::temper::AT;
use tabla_core::op::params::temper::Params;

/// Logits per unit.
const SEGMENT: usize = 1024;

impl Kernel for kind::Temper {
    /// A unit is a segment of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let vocab = p.vocab as usize;
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let row = rows[unit / vocab.div_ceil(SEGMENT)];
            let sampler = &samplers[row.sequence as usize];
            let temperature = sampler.temperature;
            // A dynamic temperature is applied by `DynamicTemper`, the next command.
            if temperature > 0.0 && sampler.dynatemp_range <= 0.0 {
                for y in y.segment(unit, [vocab, SEGMENT]) {
                    *y /= temperature;
                }
            }
        }
    }
}

impl Link for kind::Temper {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_segment::<Self>(p.tokens, p.vocab, SEGMENT))
    }
}
