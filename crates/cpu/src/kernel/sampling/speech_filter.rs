//! `y[t, i] = x[t, i]` if the rules of Whisper allow token `i` next, otherwise -inf
//!
//! A unit is a row. The rules are those in `shaders/speech_filter.wgsl`.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::speech_filter::AT;
use tabla_core::op::params::speech_filter::Params;
use tabla_core::op::params::{Row, Sampler};

const WORD: usize = u32::BITS as usize;

impl Kernel for kind::SpeechFilter {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [vocab, words, context] = [p.vocab, p.words, p.context].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let masks: &[u32] = bytemuck::cast_slice(args.bytes(AT.masks));
        let history: &[u32] = bytemuck::cast_slice(args.bytes(AT.history));
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let mut y = args.open::<f32>(AT.y);
        for t in args.units() {
            let row = rows[t];
            let sequence = row.sequence as usize;
            let y = y.unit(t, vocab);
            y.copy_from_slice(&x[t * vocab..][..vocab]);
            for (y, word) in y.chunks_mut(WORD).zip(&masks[sequence * words..][..words]) {
                if *word == u32::MAX {
                    continue;
                }
                for (bit, y) in y.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *y = f32::NEG_INFINITY;
                    }
                }
            }
            let history = &history[sequence * context..][..context];
            apply(&p, row, &samplers[sequence], history, y);
        }
    }
}

/// Ids that the rules allow.
struct Allowed {
    text: Range<usize>,
    timestamps: Range<usize>,
}

/// Applies the rules to the logits of a row. `history` has its tokens by position.
#[inline(always)]
fn apply(p: &Params, row: Row, sampler: &Sampler, history: &[u32], y: &mut [f32]) {
    let [blank, eot, no_timestamps, start] =
        [p.blank, p.eot, p.no_timestamps, p.first_timestamp].map(|n| n as usize);
    let end = history.len().min(row.position as usize + 1);
    let generated = &history[end.min(sampler.first as usize)..end];
    if generated.is_empty() {
        y[blank] = f32::NEG_INFINITY;
        y[eot] = f32::NEG_INFINITY;
    }
    if sampler.initial_timestamps == 0 {
        return;
    }
    y[no_timestamps] = f32::NEG_INFINITY;
    let mut allowed = allowed(p, generated, sampler.initial_timestamps as usize, y.len());
    let text = math::max(&y[allowed.text.clone()]);
    let timestamps = &y[allowed.timestamps.clone()];
    let peak = math::max(timestamps);
    let total = math::sum(timestamps, |y| math::exp(y - peak));
    // The logarithm of the sum is over the largest logit of text.
    if peak > f32::NEG_INFINITY && total > math::exp(text - peak) {
        allowed.text = start..start;
    }
    y[..allowed.text.start].fill(f32::NEG_INFINITY);
    y[allowed.text.end..allowed.timestamps.start].fill(f32::NEG_INFINITY);
    y[allowed.timestamps.end..].fill(f32::NEG_INFINITY);
}

/// Ids that may follow the generated tokens.
fn allowed(p: &Params, generated: &[u32], initial: usize, vocab: usize) -> Allowed {
    let start = p.first_timestamp as usize;
    let is_timestamp = |token: &u32| *token >= p.first_timestamp;
    let Some(last) = generated.last() else {
        return Allowed {
            text: start..start,
            timestamps: start..vocab.min(start + initial),
        };
    };
    let before = generated.len().checked_sub(2).map(|i| &generated[i]);
    let pair = is_timestamp(last) && before.is_none_or(is_timestamp);
    let opens = is_timestamp(last) && !pair;
    let largest = generated.iter().rfind(|token| is_timestamp(token));
    let begin = largest.map_or(start, |t| *t as usize + usize::from(!opens));
    Allowed {
        text: if opens {
            p.eot as usize..start
        } else {
            0..start
        },
        timestamps: if pair {
            start..start
        } else {
            begin.min(vocab)..vocab
        },
    }
}

impl Link for kind::SpeechFilter {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.vocab))
    }
}
