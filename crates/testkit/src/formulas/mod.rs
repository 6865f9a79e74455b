//! Reference implementations of all operations in f64, for tests of the scalar kernels.
#![expect(
    clippy::cast_possible_truncation,
    reason = "references are rounded to f32"
)]

mod attention;
mod common;
mod hooks;
mod products;
mod recurrent;
pub mod samplers;
mod speech;
mod streams;

use crate::case::Case;
use crate::rig::Outcome;
use attention::{
    attend_join, attend_part, attention, attention_scores, previous_row, rope, rope_kv,
    self_attention,
};
pub use common::activation;
use common::{rows, wide};
use hooks::{adapter_scale, attention_weights, capture, edit, project_out, self_attention_weights};
use products::{
    add_expert_bias, bit_mat, bit_quantize, experts, gemv_glu, gemv_norm, group_by_expert, product,
    route,
};
use recurrent::{conv_tail, delta_gates, delta_net, rms_gate, ssm_gates, ssm_scan};
use samplers::{bias, dry, dynamic_temper, filter, mask, penalize, temper};
use speech::speech_filter;
use streams::{add_to_streams, gaussian_top_k, match_rms, mix_streams};
use tabla_core::exec::state::NO_TOKEN;
use tabla_core::op::list::Op;
use tabla_core::op::params;

/// Returns the expected results of an operation; empty for operations with separate tests.
#[expect(clippy::too_many_lines, reason = "a table of operations")]
pub fn of(op: Op, case: &Case, o: &Outcome) -> Vec<(&'static str, Vec<f32>)> {
    let live = case.live.min(case.tokens) as usize;
    match op {
        Op::Embed => vec![("y", embed(o, live))],
        Op::EmbedAdd => vec![("y", embed_add(o, live))],
        Op::RmsNorm => vec![("y", rms_norm(o, live))],
        Op::UnitNorm => vec![("y", unit_norm(o, live))],
        Op::LayerNorm => vec![("y", layer_norm(o, live))],
        Op::Gemv | Op::Gemm => vec![("y", product(o, live, 0.0))],
        Op::GemvAdd | Op::GemmAdd => vec![("y", product(o, live, 1.0))],
        Op::GemvNorm => vec![("y", gemv_norm(o, live))],
        Op::GemvGlu => vec![("y", gemv_glu(o, live, 0.0))],
        Op::GemvGluAdd => vec![("y", gemv_glu(o, live, 1.0))],
        Op::BitQuantize => bit_quantize(o, live),
        Op::BitMat => vec![("y", bit_mat(case, o, live, 0.0))],
        Op::BitMatAdd => vec![("y", bit_mat(case, o, live, 1.0))],
        Op::Route => route(o, live),
        Op::Experts => {
            let p: params::experts::Params = o.params();
            vec![("y", experts(o, live, [p.experts, p.k, p.per_expert]))]
        }
        Op::GroupByExpert => vec![("tiles", group_by_expert(o, live))],
        Op::GroupedGemm => {
            let p: params::grouped_gemm::Params = o.params();
            vec![("y", experts(o, live, [p.experts, p.k, p.per_expert]))]
        }
        Op::Combine => vec![("y", combine(o, live))],
        Op::AddBias => vec![("y", add_bias(o, live))],
        Op::AddExpertBias => vec![("y", add_expert_bias(o, live))],
        Op::ConvTail => vec![("y", conv_tail(o, live))],
        Op::DeltaGates => vec![("y", delta_gates(o, live))],
        Op::DeltaNet => vec![("y", delta_net(o, live))],
        Op::SsmGates => vec![("y", ssm_gates(o, live))],
        Op::SsmScan => vec![("y", ssm_scan(o, live))],
        Op::RmsGate => vec![("y", rms_gate(o, live))],
        Op::Glu => vec![("y", glu(o, live))],
        Op::GluHalves => vec![("y", glu_halves(o, live))],
        Op::GluClamped => vec![("y", glu_clamped(o, live))],
        Op::Activate => vec![("y", activate(o, live))],
        Op::Add => vec![("y", add(o, live))],
        Op::Scale => vec![("y", scale(o, live))],
        Op::ScaleAt => vec![("y", scale_at(o, live))],
        Op::MixStreams => mix_streams(o, live),
        Op::AddToStreams => add_to_streams(o, live),
        Op::MatchRms => vec![("y", match_rms(o, live))],
        Op::GaussianTopK => vec![("y", gaussian_top_k(o, live))],
        Op::Mul => vec![("y", mul(o, live))],
        Op::SoftCap => vec![("y", soft_cap(o, live))],
        Op::Columns => vec![("y", columns(o, live))],
        Op::PickColumns => vec![("y", pick_columns(o, live))],
        Op::Concat => vec![("y", concat(o, live))],
        Op::Transfer => vec![("y", transfer(o, live))],
        Op::HeadIds => vec![("ids", head_ids(o, live))],
        Op::Attention => vec![("y", attention(o, live))],
        Op::LastRow => vec![("y", last_row(o, live))],
        Op::Capture => vec![("y", capture(o, "x", live))],
        Op::CaptureIds => vec![("y", capture(o, "ids", live))],
        Op::Edit => vec![("y", edit(o, live))],
        Op::ProjectOut => vec![("y", project_out(o, live))],
        Op::AttentionWeights => vec![("y", attention_weights(o, live))],
        Op::SelfAttentionWeights => vec![("y", self_attention_weights(o, live))],
        Op::AdapterScale => vec![("y", adapter_scale(o, live))],
        Op::Bias => vec![("y", bias(o, live))],
        Op::Unfold => vec![("y", unfold(o, live))],
        Op::SpeechFilter => vec![("y", speech_filter(o, live))],
        Op::Mask => vec![("y", mask(o, live))],
        Op::Penalize => vec![("y", penalize(o, live))],
        Op::Dry => vec![("y", dry(o, live))],
        Op::TopNSigma | Op::TopK | Op::Typical | Op::TopP | Op::MinP | Op::Xtc | Op::Mirostat => {
            vec![("y", filter(op, o, live))]
        }
        Op::Temper => vec![("y", temper(o, live))],
        Op::DynamicTemper => vec![("y", dynamic_temper(o, live))],
        Op::RopeKv => rope_kv(o, live, &[("k", "k_cache"), ("v", "v_cache")]),
        Op::RopeKeys => rope_kv(o, live, &[("k", "k_cache")]),
        Op::PreviousRow => vec![("y", previous_row(o, live))],
        Op::Rope => vec![("x", rope(o, live))],
        Op::AttendPart => vec![("y", attend_part(o, live))],
        Op::AttendJoin => vec![("y", attend_join(o, live))],
        Op::AttentionScores => vec![("y", attention_scores(o, live))],
        Op::SelfAttention => vec![("y", self_attention(o, live))],
        Op::Argmax => vec![("ids", argmax(o, live))],
        Op::Advance => vec![("history", advance(o, live))],
        Op::Gumbel | Op::MirostatMu | Op::Logprobs => Vec::new(),
    }
}

fn embed(o: &Outcome, live: usize) -> Vec<f32> {
    let (w, cols) = (o.numbers("w"), o.slots["w"].cols as usize);
    let tokens = o.rows();
    rows(o, live, |t, i| {
        wide(
            w.get(tokens[t].token as usize * cols + i)
                .copied()
                .unwrap_or(0.0),
        )
    })
}

fn embed_add(o: &Outcome, live: usize) -> Vec<f32> {
    let (w, y) = (o.numbers("w"), o.numbers("y"));
    let cols = o.slots["w"].cols as usize;
    let p: params::embed_add::Params = o.params();
    let tokens = o.rows();
    rows(o, live, |t, i| {
        let at = p.stride * tokens[t].position + p.type_stride * tokens[t].token_type;
        let row = (at + p.offset) as usize;
        let added = w.get(row * cols + i).copied().unwrap_or(0.0);
        wide(y[t * cols + i]) + wide(added)
    })
}

fn unit_norm(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let p: params::unit_norm::Params = o.params();
    let (cols, dim) = (o.slots["x"].cols as usize, p.dim as usize);
    rows(o, live, |t, i| {
        let group = &x[t * cols + i / dim * dim..][..dim];
        let mean = group.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / dim as f64;
        wide(group[i % dim]) / (mean + wide(p.eps)).sqrt()
    })
}

fn layer_norm(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, w) = (o.numbers("x"), o.numbers("w"));
    let p: params::layer_norm::Params = o.params();
    let dim = w.len();
    rows(o, live, |t, i| {
        let row = &x[t * dim..][..dim];
        let mean = row.iter().map(|x| wide(*x)).sum::<f64>() / dim as f64;
        let squares = row.iter().map(|x| (wide(*x) - mean).powi(2));
        let variance = squares.sum::<f64>() / dim as f64;
        (wide(row[i]) - mean) / (variance + wide(p.eps)).sqrt() * wide(w[i])
    })
}

fn rms_norm(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, w) = (o.numbers("x"), o.numbers("w"));
    let (cols, dim) = (o.slots["x"].cols as usize, w.len());
    rows(o, live, |t, i| {
        let group = &x[t * cols + i / dim * dim..][..dim];
        let mean = group.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / dim as f64;
        wide(group[i % dim]) / (mean + 1e-5).sqrt() * wide(w[i % dim])
    })
}

fn combine(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, w, y) = (o.numbers("x"), o.numbers("w"), o.numbers("y"));
    let [k, dim] = ["w", "y"].map(|name| o.slots[name].cols as usize);
    rows(o, live, |t, i| {
        let terms = (t * k..(t + 1) * k).map(|s| wide(w[s]) * wide(x[s * dim + i]));
        wide(y[t * dim + i]) + terms.sum::<f64>()
    })
}

fn add_bias(o: &Outcome, live: usize) -> Vec<f32> {
    let (b, y) = (o.numbers("b"), o.numbers("y"));
    rows(o, live, |t, i| wide(y[t * b.len() + i]) + wide(b[i]))
}

fn glu(o: &Outcome, live: usize) -> Vec<f32> {
    let (gate, up) = (o.numbers("gate"), o.numbers("up"));
    let p: params::glu::Params = o.params();
    let cols = o.slots["y"].cols as usize;
    rows(o, live, |t, i| {
        activation(p.activation, wide(gate[t * cols + i])) * wide(up[t * cols + i])
    })
}

fn glu_halves(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let p: params::glu_halves::Params = o.params();
    let (groups, dim) = (p.groups as usize, p.dim as usize);
    rows(o, live, |t, i| {
        let gate = 2 * dim * (t * groups + i / dim) + i % dim;
        activation(p.activation, wide(x[gate])) * wide(x[gate + dim])
    })
}

fn glu_clamped(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::glu_clamped::Params = o.params();
    let [dim, stride] = [p.dim, p.stride].map(|n| n as usize);
    let [gate, up] = [o.numbers("gate"), o.numbers("up")];
    let [alpha, limit] = [p.alpha, p.limit].map(wide);
    rows(o, live, |t, i| {
        let at = stride * (t * dim + i);
        let g = wide(gate[at]).min(limit);
        let u = wide(up[at + stride - 1]).clamp(-limit, limit);
        g / (1.0 + (-alpha * g).exp()) * (u + 1.0)
    })
}

/// Applies `f` to all elements of the active rows of `y`.
fn elementwise(o: &Outcome, live: usize, f: impl Fn(f64) -> f64) -> Vec<f32> {
    let y = o.numbers("y");
    let cols = o.slots["y"].cols as usize;
    rows(o, live, |t, i| f(wide(y[t * cols + i])))
}

fn activate(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::activate::Params = o.params();
    elementwise(o, live, |y| activation(p.activation, y))
}

fn scale(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::scale::Params = o.params();
    elementwise(o, live, |y| y * wide(p.factor))
}

fn scale_at(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::scale_at::Params = o.params();
    let (y, tokens) = (o.numbers("y"), o.rows());
    let cols = o.slots["y"].cols as usize;
    rows(o, live, |t, i| {
        let steps = f64::from(tokens[t].position / p.length);
        wide(y[t * cols + i]) * (1.0 + wide(p.beta) * steps.ln_1p())
    })
}

fn soft_cap(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::soft_cap::Params = o.params();
    elementwise(o, live, |y| wide(p.cap) * (y / wide(p.cap)).tanh())
}

fn add(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, y) = (o.numbers("x"), o.numbers("y"));
    let p: params::add::Params = o.params();
    let cols = o.slots["y"].cols as usize;
    rows(o, live, |t, i| {
        let at = t * cols + i;
        wide(y[at]) + wide(p.scale) * wide(x[at])
    })
}

fn mul(o: &Outcome, live: usize) -> Vec<f32> {
    let (w, y) = (o.numbers("w"), o.numbers("y"));
    let cols = o.slots["y"].cols as usize;
    rows(o, live, |t, i| wide(y[t * cols + i]) * wide(w[i % w.len()]))
}

fn columns(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let p: params::columns::Params = o.params();
    let [groups, width, offset, dim] = [p.groups, p.width, p.offset, p.dim].map(|n| n as usize);
    rows(o, live, |t, i| {
        wide(x[(t * groups + i / dim) * width + offset + i % dim])
    })
}

fn pick_columns(o: &Outcome, live: usize) -> Vec<f32> {
    let [x, index] = ["x", "index"].map(|name| o.numbers(name));
    let width = o.slots["x"].cols as usize;
    rows(o, live, |t, i| match index[i] {
        column if column < 0.0 => f64::NEG_INFINITY,
        column => wide(x[t * width + column as usize]),
    })
}

fn transfer(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let p: params::transfer::Params = o.params();
    rows(o, live, |t, i| wide(x[t * p.dim as usize + i]))
}

fn concat(o: &Outcome, live: usize) -> Vec<f32> {
    let [a, b] = ["a", "b"].map(|name| o.numbers(name));
    let p: params::concat::Params = o.params();
    let [groups, a_dim, b_dim] = [p.groups, p.a_dim, p.b_dim].map(|n| n as usize);
    rows(o, live, |t, i| {
        let (group, column) = (t * groups + i / (a_dim + b_dim), i % (a_dim + b_dim));
        wide(match column.checked_sub(a_dim) {
            None => a[group * a_dim + column],
            Some(column) => b[group * b_dim + column],
        })
    })
}

fn head_ids(o: &Outcome, live: usize) -> Vec<f32> {
    let heads = o.slots["ids"].cols as usize;
    let mut ids = o.numbers("ids");
    for (i, id) in ids[..live * heads].iter_mut().enumerate() {
        *id = (i % heads) as f32;
    }
    ids
}

fn unfold(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let p: params::unfold::Params = o.params();
    let [channels, stride] = [p.channels, p.stride].map(|n| n as usize);
    rows(o, live, |t, i| {
        let row = (stride * t + i % 3).wrapping_sub(1);
        let x = x
            .get(row.wrapping_mul(channels)..)
            .and_then(|row| row.get(i / 3));
        x.map_or(0.0, |x| wide(*x))
    })
}

fn last_row(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let cols = o.slots["x"].cols as usize;
    x[(live - 1) * cols..][..cols].to_vec()
}

fn argmax(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, mut ids) = (o.numbers("x"), o.numbers("ids"));
    let vocab = o.slots["x"].cols as usize;
    for (id, x) in ids.iter_mut().zip(x.chunks(vocab)).take(live) {
        let largest = x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
        let first = x.iter().position(|x| *x == largest && x.is_finite());
        *id = first.map_or(NO_TOKEN as f32, |first| first as f32);
    }
    ids
}

/// Returns the history only; rows have a separate test.
fn advance(o: &Outcome, live: usize) -> Vec<f32> {
    let (ids, mut history) = (o.numbers("ids"), o.numbers("history"));
    let context = o.slots["history"].cols as usize;
    for (row, id) in o.rows()[..live].iter().zip(ids) {
        let position = row.position as usize + 1;
        if position < context {
            history[row.sequence as usize * context + position] = id;
        }
    }
    history
}
