//! `y[t, i] = x[t, i] + bias(i)`, and -inf where `i` is a stop token in front of position `stop_from`

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::exec::state::Bias;
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::operands::bias::AT;
use tabla_core::op::params::bias::Params;

/// Logits of a row that go together.
const PIECE: usize = 4096;

struct Biases;

impl Kernel for Biases {
    /// A unit is a piece of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [vocab, room] = [p.vocab, p.room].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let biases: &[Bias] = bytemuck::cast_slice(args.bytes(AT.biases));
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let each = vocab.div_ceil(PIECE);
        let mut out = args.open::<f32>(AT.y);
        for unit in args.units() {
            let (t, start) = (unit / each, unit % each * PIECE);
            let row = rows[t];
            let sampler = &samplers[row.sequence as usize];
            let y = out.pieces(unit, [vocab, PIECE]);
            y.copy_from_slice(&x[t * vocab + start..][..y.len()]);
            let mut add = |token: u32, bias: f32| {
                let at = (token as usize).checked_sub(start);
                if let Some(y) = at.and_then(|at| y.get_mut(at)) {
                    *y += bias;
                }
            };
            let count = room.min(sampler.bias_count as usize);
            for bias in &biases[row.sequence as usize * room..][..count] {
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

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(request.by_pieces::<Biases>(p.tokens, p.vocab, PIECE))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.pick_full($vocab, SamplerKind::DEFAULT),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Off, some, as many as have room, stop tokens, rows; runners draw biases of the first tokens.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1/1 at 0, |s| s.bias_count = 1),
    case!("off", 37, 1/1 at 0, |_| {}),
    case!("some", 131, 1/1 at 0, |s| s.bias_count = 17),
    case!("more than have room", 5003, 1/1 at 0, |s| s.bias_count = 1000),
    case!("too early to stop", 131, 1/1 at 8, |s| {
        (s.stop_from, s.stop_count, s.stops[0], s.stops[1]) = (10, 2, 7, 130);
    }),
    case!("late enough", 131, 1/1 at 9, |s| {
        (s.stop_from, s.stop_count, s.stops[0]) = (10, 1, 7);
    }),
    case!("rows", 131, 5/4 at 3, |s| {
        (s.bias_count, s.stop_from, s.stop_count, s.stops[0]) = (9, 10, 1, 99);
    }),
];
