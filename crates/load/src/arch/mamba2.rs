//! The layer with a state-space model.
//!
//! Formula: T. Dao and A. Gu, "Transformers are SSMs", 2024; `transformers`, class `BambaMixer`.

use super::Config;
use super::names::Pairs;
use super::parts::Layer;
use super::recurrent_config::{Recurrent, Ssm};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, Conv, X};

/// Modules of layers with a state-space model.
pub(super) const NAMES: Pairs = &[
    ("mamba.in_proj", "ssm_in"),
    ("mamba.conv1d", "ssm_conv1d"),
    ("mamba.A_log", "ssm_a"),
    ("mamba.D", "ssm_d"),
    ("mamba.dt_bias", "ssm_dt.bias"),
    ("mamba.norm", "ssm_norm"),
    ("mamba.out_proj", "ssm_out"),
];

/// `norm(ssm_scan(conv([x | B | C]), dt) * silu(z))` for `[z | x | B | C | dt] = Win n`, `[tokens, inner]`; the output
/// of the layer is `ssm_out` times this.
pub(super) fn mixer(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
    let Some(Recurrent::Ssm(ssm)) = c.recurrent else {
        unreachable!("layers are recurrent only with a state-space model");
    };
    let Ssm { taps, at, .. } = ssm;
    let (inner, channels) = (at.width(), at.channels());
    let all = l.project(b, c, "ssm_in", inner + channels + at.heads, n);
    let [z, x, dt] = sections(b, ssm, all);
    let w = l.vector(b, "ssm_conv1d", taps * channels); // [taps, channels]
    let bias = l.optional_vector(b, c, "ssm_conv1d.bias", channels);
    let conv = Conv {
        taps,
        w,
        bias,
        silu: true,
    };
    let x = b.conv_tail(l.index, conv, x);
    let rate = b.vector(&l.tensor("ssm_a"), at.heads); // -e^A_log
    let bias = b.vector(&l.tensor("ssm_dt.bias"), at.heads);
    let gates = b.ssm_gates(dt, [rate, bias], ssm.dt_limit); // [tokens, 2 heads]
    let d = b.vector(&l.tensor("ssm_d"), at.heads);
    let y = b.ssm_scan(l.index, at, x, gates, d); // [tokens, inner]
    let y = gated_norm(b, c, l, ssm, [y, z]);
    b.point(&l.tensor("attn"), y);
    y
}

/// The sections `[z | x B C | dt]` of the input projection, multiplied by their factors.
fn sections(b: &mut Builder<'_>, ssm: Ssm, all: X) -> [X; 3] {
    let Ssm { at, scales, .. } = ssm;
    let (inner, keys) = (at.width(), at.groups * at.key_dim);
    let mut section = |first: u32, width: u32, scale: f32| {
        let x = b.columns(all, first, width);
        if scale != 1.0 {
            b.scale(x, scale);
        }
        x
    };
    let [of_z, of_x, of_b, of_c, of_dt] = scales;
    let z = section(0, inner, of_z);
    let dt = section(inner + at.channels(), at.heads, of_dt);
    if of_x == of_b && of_x == of_c {
        return [z, section(inner, at.channels(), of_x), dt];
    }
    let x = section(inner, inner, of_x);
    let [key, query] =
        [(0, of_b), (1, of_c)].map(|(at, scale)| section(2 * inner + at * keys, keys, scale));
    let key_query = b.concat_groups(1, [key, query]);
    [z, b.concat_groups(1, [x, key_query]), dt]
}

/// `norm(y * silu(z))`, or `norm(y) * silu(z)`; some models have no norm. Groups are normalized separately.
fn gated_norm(b: &mut Builder<'_>, c: &Config, l: Layer, ssm: Ssm, [y, z]: [X; 2]) -> X {
    let inner = ssm.at.width();
    let norm = |b: &mut Builder<'_>, y: X| {
        let Some(w) = l.optional_vector(b, c, "ssm_norm.weight", inner) else {
            return y;
        };
        match ssm.at.groups {
            1 => b.rms_norm(y, w, c.eps),
            groups => {
                let n = b.unit_norm(y, inner / groups, c.eps);
                b.mul(w, n);
                n
            }
        }
    };
    if ssm.norm_before_gate {
        let n = norm(b, y);
        return b.glu(Activation::Silu, z, n);
    }
    let y = b.glu(Activation::Silu, z, y);
    norm(b, y)
}
