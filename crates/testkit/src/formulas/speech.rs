//! Formula of the rules of transcripts, one rule after the other.

use super::common::{rows, wide};
use super::samplers::rows_with_samplers;
use crate::rig::Outcome;
use tabla_core::op::params::speech_filter::Params;

pub(super) fn speech_filter(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, p): (_, Params) = (o.numbers("x"), o.params());
    let [masks, history] =
        ["masks", "history"].map(|name| bytemuck::pod_collect_to_vec::<u8, u32>(&o.before[name]));
    let [vocab, words, context] = ["x", "masks", "history"].map(|name| o.slots[name].cols as usize);
    let filtered: Vec<Vec<f64>> = rows_with_samplers(o, live)
        .iter()
        .enumerate()
        .map(|(t, (row, sampler))| {
            let sequence = row.sequence as usize;
            let masked = |i: usize| masks[sequence * words + i / 32] & 1 << (i % 32) == 0;
            let mut y: Vec<f64> = x[t * vocab..][..vocab].iter().map(|x| wide(*x)).collect();
            let mut forbid = |what: &dyn Fn(usize) -> bool| {
                for (i, y) in y.iter_mut().enumerate().filter(|(i, _)| what(*i)) {
                    let _ = i;
                    *y = f64::NEG_INFINITY;
                }
            };
            forbid(&masked);
            let end = row.position as usize + 1;
            let first = (sampler.first as usize).min(end);
            let tokens = &history[sequence * context..][first..end];
            let start = p.first_timestamp as usize;
            if tokens.is_empty() {
                forbid(&|i| i == p.blank as usize || i == p.eot as usize);
            }
            if sampler.initial_timestamps == 0 {
                return y;
            }
            forbid(&|i| i == p.no_timestamps as usize);
            let is_timestamp = |token: u32| token >= p.first_timestamp;
            let after = tokens.last().is_some_and(|t| is_timestamp(*t));
            let pair = after && (tokens.len() < 2 || is_timestamp(tokens[tokens.len() - 2]));
            if pair {
                forbid(&|i| i >= start);
            } else if after {
                forbid(&|i| i < p.eot as usize);
            }
            let last = tokens.iter().rev().find(|t| is_timestamp(**t));
            if let Some(last) = last {
                let least = *last as usize + usize::from(!after || pair);
                forbid(&|i| (start..least).contains(&i));
            }
            if tokens.is_empty() {
                let end = start + sampler.initial_timestamps as usize;
                forbid(&|i| i < start || i >= end);
            }
            let text = y[..start].iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
            let sum: f64 = y[start..].iter().map(|y| y.exp()).sum();
            if sum.ln() > text {
                y[..start].fill(f64::NEG_INFINITY);
            }
            y
        })
        .collect();
    rows(o, live, |t, i| filtered[t][i])
}
