//! `y[t, i] = -inf` where bit `i` of the sequence's mask is 0

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::mask::AT;
use tabla_core::op::params::mask::Params;

/// Logits per unit; a multiple of the bits of a mask word.
const SEGMENT: usize = 4096;
const WORD: usize = u32::BITS as usize;

impl Kernel for kind::Mask {
    /// A unit is a segment of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [vocab, words] = [p.vocab, p.words].map(|n| n as usize);
        let masks: &[u32] = bytemuck::cast_slice(args.bytes(AT.masks));
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let each = vocab.div_ceil(SEGMENT);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let (t, start) = (unit / each, unit % each * SEGMENT);
            let sequence = rows[t].sequence as usize;
            if samplers[sequence].masked == 0 {
                continue;
            }
            let mask = &masks[sequence * words..][start / WORD..];
            let y = y.segment(unit, [vocab, SEGMENT]).chunks_mut(WORD);
            for (y, word) in y.zip(mask) {
                for (bit, y) in y.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *y = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

impl Link for kind::Mask {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_segment::<Self>(p.tokens, p.vocab, SEGMENT))
    }
}
