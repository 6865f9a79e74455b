//! Cases of attention and rotary position embedding.

use super::common::{dot, heads, nearby_rows, row_of, rows, softcapped, softmax, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::fill::of_codes;
use crate::rig::Outcome;
use tabla_core::dtype::DType;
use tabla_core::op::kind;
use tabla_core::op::params::{self, attention, rope, rope_kv, self_attention};
use tabla_plan::builder::{Heads, Rope, Scores};

macro_rules! rope_kv_case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$kv_heads:literal x $head_dim:literal, $rope_dim:literal, $half_split:literal
     $(, window $window:literal)? $(, by $sequence:literal)? $(, latent $latent:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let k = b.input("k", $kv_heads * $head_dim);
            let at = heads([$heads, $kv_heads, $head_dim], 0 $(+ $window)?);
            $(let at = Heads { latent: $latent, ..at };)?
            let rope = Rope {
                index: 0,
                dim: $rope_dim,
                half_split: $half_split,
                magnitude: 1.25,
            };
            if at.latent {
                b.rope_keys(at, rope, q, k);
            } else {
                let v = b.input("v", $kv_heads * $head_dim);
                b.rope_kv(at, rope, q, k, v);
            }
        })
        .at($position, $context)
        $(.sequence($sequence))?
        .window(0 $(+ $window)?)
        .cache(DType::$cache)
        // Rounding in the cache may differ: codes by 1 of 127.
        .tolerance(match DType::$cache {
            DType::Q8_0 => 8.5e-3,
            _ => 1e-3,
        })
    };
}

impl Tested for kind::RopeKv {
    /// Both pairings, partial rotation, the end of the context, passes that cross the end of a page and
    /// of a ring of pages, several sequences.
    const CASES: &'static [Case] = &[
        rope_kv_case!("one pair", F32, 1/1 at 0 of 4, 1/1 x 2, 2, true),
        rope_kv_case!("half split", F32, 5/3 at 7 of 16, 6/2 x 8, 8, true),
        rope_kv_case!("interleaved", F16, 5/3 at 7 of 16, 6/3 x 10, 10, false),
        rope_kv_case!("partial rotation", F16, 3/3 at 2 of 16, 4/1 x 12, 4, true),
        rope_kv_case!("partial rotation, interleaved", F32, 3/2 at 2 of 16, 4/4 x 6, 2, false),
        rope_kv_case!("no rotation", F16, 3/2 at 2 of 16, 6/2 x 8, 0, true),
        rope_kv_case!("past the context", F16, 4/4 at 6 of 8, 2/2 x 4, 4, true),
        rope_kv_case!("many", F16, 67/61 at 3 of 100, 8/4 x 16, 16, true),
        rope_kv_case!("across pages", F32, 140/133 at 60 of 200, 2/1 x 4, 4, false),
        rope_kv_case!("ring wraps", F32, 9/8 at 124 of 200, 5/1 x 6, 6, true, window 8),
        rope_kv_case!("far position in a ring", F32, 3/3 at 1022 of 1030, 2/1 x 6, 6, true, window 70),
        rope_kv_case!("past the context of a ring", F16, 4/4 at 198 of 200, 4/2 x 8, 4, false, window 3),
        rope_kv_case!("a window without a ring", F16, 4/4 at 98 of 100, 4/2 x 8, 4, false, window 3),
        rope_kv_case!("codes", Q8_0, 5/4 at 62 of 128, 4/2 x 64, 64, true),
        rope_kv_case!("codes of long heads", Q8_0, 3/3 at 7 of 16, 6/3 x 320, 300, false),
        rope_kv_case!("codes in a ring", Q8_0, 9/8 at 124 of 200, 5/1 x 64, 0, true, window 8),
        rope_kv_case!("sequences", F16, 5/4 at 9 of 16, 4/2 x 8, 8, true, by 1),
        rope_kv_case!("sequences of rings", F32, 7/6 at 191 of 200, 2/1 x 6, 4, false, window 3, by 3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        rope_kv(o, live, &[("k", "k_cache"), ("v", "v_cache")])
    }
}

impl Tested for kind::RopeKeys {
    const CASES: &'static [Case] = &[
        rope_kv_case!("one", F32, 1/1 at 0 of 4, 1/1 x 2, 2, false, latent true),
        rope_kv_case!("long rows", F16, 5/3 at 7 of 16, 5/1 x 576, 64, false, latent true),
        rope_kv_case!("across pages", F32, 9/8 at 60 of 128, 6/2 x 12, 4, true, latent true),
        rope_kv_case!("codes", Q8_0, 5/4 at 62 of 128, 4/1 x 576, 64, false, latent true),
        rope_kv_case!("sequences", F16, 5/4 at 9 of 16, 4/1 x 10, 4, false, by 1, latent true),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        rope_kv(o, live, &[("k", "k_cache")])
    }
}

macro_rules! previous_row_case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $kv_heads:literal x $head_dim:literal $(, by $sequence:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
            b.previous_row(Heads { latent: true, ..heads([0, $kv_heads, $head_dim], 0) });
        })
        .at($position, $context)
        $(.sequence($sequence))?
        .cache(DType::$cache)
        .tolerance(0.0)
    };
}

impl Tested for kind::PreviousRow {
    /// The first position, one after a page, several pages.
    const CASES: &'static [Case] = &[
        previous_row_case!("first", F32, 1/1 at 0 of 4, 1 x 2),
        previous_row_case!("first of many", F16, 5/4 at 0 of 16, 3 x 44),
        previous_row_case!("after a page", F16, 1/1 at 64 of 128, 2 x 64),
        previous_row_case!("across pages", F32, 9/8 at 60 of 128, 3 x 12),
        previous_row_case!("codes", Q8_0, 5/4 at 62 of 128, 5 x 64),
        previous_row_case!("sequences", F16, 5/4 at 9 of 16, 2 x 10, by 1),
    ];

    /// Rows of the previous positions.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::previous_row::Params = o.params();
        let (keys, mut y) = (o.numbers("k_cache"), o.numbers("y"));
        let width = (p.kv_heads * p.head_dim) as usize;
        let rows = o.rows();
        for (row, y) in rows.iter().take(live).zip(y.chunks_mut(width)) {
            match row.position.min(o.state().context) {
                0 => y.fill(0.0),
                n => {
                    let at = row_of(o, row, [p.stride, p.first, p.ring], n as usize - 1) * width;
                    y.copy_from_slice(&keys[at..][..width]);
                }
            }
        }
        vec![("y", y)]
    }
}

macro_rules! rope_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal,
     $heads:literal x $head_dim:literal, $rope_dim:literal, $half_split:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $heads * $head_dim);
            let rope = Rope {
                index: 0,
                dim: $rope_dim,
                half_split: $half_split,
                magnitude: 0.75,
            };
            b.rope($heads, $head_dim, rope, x);
        })
        .at($position, 16)
    };
}

impl Tested for kind::Rope {
    /// Both pairings, partial rotation, positions after the context, which this operation does not
    /// read.
    const CASES: &'static [Case] = &[
        rope_case!("one pair", 1/1 at 0, 1 x 2, 2, true),
        rope_case!("half split", 5/3 at 7, 6 x 8, 8, true),
        rope_case!("interleaved", 5/3 at 70, 3 x 10, 10, false),
        rope_case!("partial rotation", 3/3 at 2, 5 x 12, 4, true),
        rope_case!("partial rotation, interleaved", 3/2 at 1000, 4 x 6, 2, false),
        rope_case!("many", 67/61 at 3, 8 x 16, 16, true),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: rope::Params = o.params();
        let (freqs, mut x) = (o.numbers("freqs"), o.numbers("x"));
        let width = (p.heads * p.head_dim) as usize;
        for (row, x) in o.rows()[..live].iter().zip(x.chunks_exact_mut(width)) {
            let y = rotated(&p, &freqs, row.position, x);
            x.copy_from_slice(&y);
        }
        vec![("x", x)]
    }
}

/// A case of split attention if it has a part.
macro_rules! attention_case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$kv_heads:literal x $head_dim:literal $(, window $window:literal)? $(, cap $cap:literal)?
     $(, by $sequence:literal)? $(, latent $latent:literal)? $(, $sinks:literal sinks)?
     $(, skip $skip:literal)? $(, part $part:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let at = heads([$heads, $kv_heads, $head_dim], 0 $(+ $window)?);
            $(let at = Heads { latent: $latent, ..at };)?
            let scores = Scores {
                // Rows of latent attention are long, and have smaller factors.
                scale: 0.3 $(* if $latent { 0.2 } else { 1.0 })?,
                $(sinks: Some(b.vector("sinks", $sinks)),)?
                skip: 0 $(+ $skip)?,
                ..capped(0.0 $(+ $cap)?)
            };
            match 0 $(+ $part)? {
                0 => b.attention(at, q, scores),
                part => b.split_attention(at, q, scores, part),
            };
        })
        .at($position, $context)
        $(.sequence($sequence))?
        .window(0 $(+ $window)?)
        .cache(DType::$cache)
        .weights(&[$(("sinks", DType::F32, 1, $sinks))?])
    };
}

macro_rules! cross_attention_case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal,
     $heads:literal/$kv_heads:literal x $head_dim:literal, of $positions:literal, window $window:literal
     $(, by $sequence:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let at = heads([$heads, $kv_heads, $head_dim], $window);
            b.cross_attention(at, q, 0.3, $positions);
        })
        .at($position, 1600)
        $(.sequence($sequence))?
        .window($window)
        .cache(DType::$cache)
    };
}

/// Scores with a soft cap.
const fn capped(softcap: f32) -> Scores {
    Scores::scaled(0.3).softcapped(softcap)
}

impl Tested for kind::Attention {
    /// Groups of 1 to 7, heads that are not a multiple of the vector width, several panels and blocks,
    /// contexts with a partial page, windows whose ring wraps within a batch, a panel and a block.
    const CASES: &'static [Case] = &[
        attention_case!("one", F32, 1/1 at 0 of 1, 1/1 x 2),
        attention_case!("first position", F16, 1/1 at 0 of 8, 4/2 x 16),
        attention_case!("odd head", F32, 3/2 at 4 of 16, 6/2 x 10),
        attention_case!("odd head", F16, 3/3 at 4 of 16, 3/3 x 6),
        attention_case!("group of 4", F16, 2/2 at 30 of 64, 8/2 x 64),
        attention_case!("group of 7", F32, 5/4 at 3 of 32, 14/2 x 32),
        attention_case!("panels", F16, 1/1 at 200 of 256, 6/2 x 48),
        attention_case!("exactly a panel", F16, 2/2 at 62 of 128, 4/4 x 80),
        attention_case!("many", F16, 67/61 at 70 of 140, 8/4 x 16),
        attention_case!("soft cap", F32, 3/3 at 9 of 16, 4/2 x 16, cap 1.5),
        attention_case!("window not yet full", F32, 3/2 at 2 of 64, 5/1 x 2, window 16),
        attention_case!("window over the context", F16, 2/2 at 6 of 8, 2/1 x 16, window 100),
        attention_case!("window of one", F16, 4/4 at 190 of 200, 2/2 x 16, window 1),
        attention_case!("window within a panel", F16, 1/1 at 300 of 512, 5/1 x 32, window 16),
        attention_case!("window of panels", F32, 2/2 at 410 of 512, 6/2 x 16, window 150, cap 2.0),
        attention_case!("ring wraps within a batch", F16, 40/37 at 100 of 256, 4/2 x 16, window 16),
        attention_case!("ring wraps", F32, 5/5 at 124 of 256, 3/3 x 10, window 16),
        attention_case!("sequences", F16, 5/4 at 100 of 150, 4/2 x 16, by 1),
        attention_case!("sequences of rings", F32, 9/8 at 190 of 200, 3/1 x 16, window 5, by 3),
        attention_case!("blocks", F16, 1/1 at 1000 of 1024, 6/2 x 16),
        attention_case!("blocks of several heads", F16, 1/1 at 600 of 640, 8/8 x 64),
        attention_case!("whole blocks per thread", F16, 1/1 at 1900 of 2048, 8/4 x 96),
        attention_case!("window of whole blocks", F32, 1/1 at 1900 of 2048, 2/2 x 80, window 1390),
        attention_case!("whole blocks of codes", Q8_0, 1/1 at 1100 of 1280, 8/4 x 64),
        attention_case!("exactly a block", F32, 2/2 at 254 of 512, 2/1 x 16),
        attention_case!("tiles over blocks", F16, 150/141 at 200 of 400, 2/1 x 16),
        attention_case!("ring within a tile", F16, 70/66 at 610 of 1024, 2/2 x 16, window 300),
        attention_case!("ring of blocks", F16, 1/1 at 700 of 1024, 2/1 x 16, window 515),
        attention_case!("many heads of 64", F16, 67/66 at 30 of 140, 8/2 x 64, cap 1.5),
        attention_case!("many heads of 72", F16, 40/38 at 70 of 140, 4/2 x 72, window 50, 4 sinks),
        attention_case!("many heads of 128", F16, 41/40 at 20 of 64, 6/2 x 128, by 17),
        attention_case!("many heads of 256", F16, 20/19 at 30 of 64, 2/1 x 256),
        attention_case!("many odd heads", F16, 21/20 at 3 of 64, 2/2 x 288, window 9),
        attention_case!("many heads of 512", F32, 19/18 at 20 of 64, 2/1 x 512, window 16, cap 2.0),
        attention_case!("codes", Q8_0, 1/1 at 300 of 512, 6/3 x 64),
        attention_case!("a tile of codes", Q8_0, 67/61 at 70 of 140, 8/2 x 128, cap 1.5),
        attention_case!("a ring of codes", Q8_0, 40/37 at 100 of 256, 4/1 x 64, window 16),
        attention_case!("head of 512", F16, 2/1 at 90 of 128, 2/1 x 512, window 70, cap 30.0),
        attention_case!("latent", F32, 2/2 at 90 of 128, 5/1 x 576, latent true),
        attention_case!("latent, many", F16, 20/19 at 60 of 128, 3/1 x 576, latent true),
        attention_case!("latent codes", Q8_0, 3/3 at 100 of 128, 4/1 x 64, latent true),
        attention_case!("sinks", F32, 1/1 at 0 of 16, 6/2 x 10, 6 sinks),
        attention_case!("sinks of many tokens", F16, 67/61 at 70 of 140, 8/2 x 64, window 16, 8 sinks),
        attention_case!("skip of its own", F16, 1/1 at 2 of 16, 4/2 x 64, 4 sinks, skip 3),
        attention_case!("skip of a tile", F16, 35/33 at 0 of 140, 4/2 x 64, 4 sinks, skip 1),
        attention_case!("skip of blocks", F32, 1/1 at 1900 of 2048, 4/4 x 64, 4 sinks, skip 70),
        attention_case!("sinks of blocks", F16, 1/1 at 1900 of 2048, 8/4 x 96, cap 1.5, 8 sinks),
        attention_case!("sinks of heads", F16, 1/1 at 600 of 640, 8/8 x 64, 8 sinks),
        cross_attention_case!("all positions", F16, 1/1 at 5, 6/6 x 64, of 1500, window 0),
        cross_attention_case!("all positions of a ring", F32, 3/2 at 80, 3/1 x 16, of 70, window 70, by 1),
        cross_attention_case!("beams", F16, 8/5 at 7, 4/4 x 64, of 300, window 0, by 1),
        cross_attention_case!("all rows", F16, 300/300 at 0, 2/2 x 64, of 300, window 0),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: attention::Params = o.params();
        let (q, k, v) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("v_cache"));
        let (head, kv_heads) = (p.head_dim as usize, p.kv_heads as usize);
        let group = p.heads as usize / kv_heads;
        let tokens = o.rows();
        rows(o, live, |t, i| {
            let h = i / head;
            let position = match p.positions {
                0 => tokens[t].position as usize,
                n => n as usize - 1,
            };
            let first = position.saturating_sub(p.window as usize - 1);
            let seen = first.max(position.min(p.skip as usize))..=position;
            let row = |position| row_of(o, &tokens[t], [p.stride, p.first, p.ring], position);
            let at = |position: usize| (row(position) * kv_heads + h / group) * head;
            let score = |position: usize| {
                let q = &q[t * group * kv_heads * head + h * head..][..head];
                softcapped(wide(p.scale) * dot(q, &k[at(position)..]), p.softcap)
            };
            let sink = (p.sinks > 0).then(|| wide(o.numbers("sinks")[h]));
            softmax(seen.clone().map(score).chain(sink))
                .zip(seen)
                .map(|(weight, position)| weight * wide(v[at(position) + i % head]))
                .sum()
        })
    }
}

/// Positions of a part: `part`, or pages until `parts` parts are enough.
fn part_of(seen: usize, part: u32, parts: u32) -> usize {
    let pages = (1..).map(|n| n * params::PAGE as usize);
    let mut sizes = std::iter::once(part as usize).chain(pages.filter(|n| *n > part as usize));
    let enough = sizes.find(|size| size * parts as usize >= seen);
    enough.expect("sizes increase without a limit")
}

impl Tested for kind::AttendPart {
    /// Groups of 1 to 7, parts with a partial tile, one part and many, rings that wrap within a part,
    /// contexts with a partial page.
    const CASES: &'static [Case] = &[
        attention_case!("first position", F32, 1/1 at 0 of 8, 4/2 x 16, part 256),
        attention_case!("group of 7", F16, 3/2 at 130 of 256, 14/2 x 40, part 64),
        attention_case!("tiles in a part", F16, 1/1 at 700 of 800, 6/2 x 64, part 300),
        attention_case!("soft cap", F32, 2/2 at 77 of 128, 4/4 x 8, cap 1.5, part 16),
        attention_case!("ring wraps", F16, 5/5 at 410 of 510, 8/1 x 16, window 150, part 64),
        attention_case!("codes", Q8_0, 5/5 at 410 of 510, 8/2 x 64, window 150, part 64),
        attention_case!("latent", F16, 1/1 at 90 of 128, 5/1 x 576, latent true, part 32),
        attention_case!("head of 512", F32, 1/1 at 90 of 128, 2/1 x 512, window 70, cap 30.0, part 32),
        attention_case!("larger parts", F16, 3/2 at 1300 of 1536, 10/2 x 72, part 16),
        attention_case!("one column of octets", F16, 2/2 at 200 of 256, 3/3 x 8, part 128),
        attention_case!("odd tiles", F32, 4/3 at 191 of 256, 8/2 x 104, window 130, part 128),
        attention_case!("long heads of codes", Q8_0, 2/1 at 170 of 256, 5/1 x 256, part 100),
    ];

    /// Does not change unused parts.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::attend_part::Params = o.params();
        let (q, k, v) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("v_cache"));
        let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let mut y = o.numbers("y");
        for (unit, row) in o
            .rows()
            .iter()
            .take(live)
            .flat_map(|row| vec![row; heads])
            .enumerate()
        {
            let end = match p.positions {
                0 => row.position + 1,
                n => n,
            };
            let first = end.saturating_sub(p.window).max(p.skip.min(end - 1));
            let seen: Vec<u32> = (first..end).collect();
            let y = &mut y[unit * p.parts as usize * (head + 2)..];
            let at = |position: &u32| {
                let row = row_of(o, row, [p.stride, p.first, p.ring], *position as usize);
                (row * kv_heads + unit % heads / (heads / kv_heads)) * head
            };
            let score = |position: &u32| {
                let q = &q[unit * head..][..head];
                softcapped(wide(p.scale) * dot(q, &k[at(position)..]), p.softcap)
            };
            let size = part_of(seen.len(), p.part, p.parts);
            for (seen, y) in seen.chunks(size).zip(y.chunks_exact_mut(head + 2)) {
                let peak = seen.iter().map(score).fold(f64::MIN, f64::max);
                let weights: Vec<f64> = seen.iter().map(|s| (score(s) - peak).exp()).collect();
                for (i, y) in y[..head].iter_mut().enumerate() {
                    let values = seen.iter().map(|s| wide(v[at(s) + i]));
                    *y = values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() as f32;
                }
                y[head] = peak as f32;
                y[head + 1] = weights.iter().sum::<f64>() as f32;
            }
        }
        vec![("y", y)]
    }
}

macro_rules! attend_join_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal x $head_dim:literal, window $window:literal, part $part:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let at = heads([$heads, $heads, $head_dim], $window);
            b.split_attention(at, q, capped(0.0), $part);
        })
        .at($position, $context)
    };
}

impl Tested for kind::AttendJoin {
    /// One part and many, the last one full or partial.
    const CASES: &'static [Case] = &[
        attend_join_case!("one part", 1/1 at 5 of 16, 2 x 16, window 0, part 64),
        attend_join_case!("many parts", 3/2 at 500 of 1024, 3 x 72, window 0, part 16),
        attend_join_case!("whole parts", 1/1 at 127 of 256, 2 x 8, window 0, part 32),
        attend_join_case!("window", 4/4 at 300 of 512, 2 x 16, window 100, part 32),
        attend_join_case!("larger parts", 3/2 at 1500 of 2048, 2 x 64, window 0, part 16),
        attend_join_case!("long heads", 2/2 at 900 of 1024, 2 x 576, window 0, part 16),
        attention_case!("skip", F16, 4/3 at 0 of 1024, 8/2 x 64, 8 sinks, skip 1, part 16),
        attention_case!("skip of parts", F32, 2/2 at 700 of 1024, 4/2 x 64, window 128, 4 sinks, skip 600, part 16),
        attention_case!("sinks", F16, 3/2 at 500 of 1024, 8/2 x 64, window 128, 8 sinks, part 16),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::attend_join::Params = o.params();
        let x = o.numbers("x");
        let [head, heads, parts] = [p.head_dim, p.heads, p.parts].map(|n| n as usize);
        let size = head + 2;
        let tokens = o.rows();
        rows(o, live, |t, i| {
            let end = match p.positions {
                0 => tokens[t].position + 1,
                n => n,
            };
            let seen = end.min(p.window).min(end - p.skip.min(end - 1));
            let there = (seen as usize).div_ceil(part_of(seen as usize, p.part, p.parts));
            let parts = x[(t * heads + i / head) * parts * size..]
                .chunks(size)
                .take(there);
            let sink = match p.sinks {
                0 => f64::NEG_INFINITY,
                _ => wide(o.numbers("sinks")[i / head]),
            };
            let peaks = parts.clone().map(|x| wide(x[head]));
            let peak = peaks.fold(sink, f64::max);
            let weight = |x: &[f32]| (wide(x[head]) - peak).exp();
            let total: f64 = parts.clone().map(|x| weight(x) * wide(x[head + 1])).sum();
            let total = total + (sink - peak).exp();
            parts.map(|x| weight(x) * wide(x[i % head])).sum::<f64>() / total
        })
    }
}

macro_rules! self_attention_case {
    ($name:literal, $tokens:literal/$live:literal by $sequence:expr,
     $heads:literal/$kv_heads:literal x $head_dim:literal, reach $reach:expr) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let k = b.input("k", $kv_heads * $head_dim);
            let v = b.input("v", $kv_heads * $head_dim);
            let heads = [$heads, $kv_heads, $head_dim];
            b.self_attention(heads, [q, k, v], 0.3, $reach);
        })
        .sequence($sequence)
    };
}

impl Tested for kind::SelfAttention {
    /// One sequence and several, the last one partial, single rows, reaches smaller and larger than
    /// sequences.
    const CASES: &'static [Case] = &[
        self_attention_case!("one row", 1/1 by 9, 2/1 x 2, reach u32::MAX),
        self_attention_case!("one sequence", 67/61 by 100, 4/4 x 16, reach u32::MAX),
        self_attention_case!("sequences", 40/37 by 13, 6/2 x 10, reach u32::MAX),
        self_attention_case!("tiles", 160/160 by 150, 5/1 x 32, reach u32::MAX),
        self_attention_case!("heads of 72", 90/85 by 37, 4/2 x 72, reach u32::MAX),
        self_attention_case!("heads of 64", 140/140 by 131, 2/2 x 64, reach 50),
        self_attention_case!("heads of 128", 40/33 by 20, 6/2 x 128, reach u32::MAX),
        self_attention_case!("blocks", 300/290 by 280, 2/2 x 16, reach u32::MAX),
        self_attention_case!("window over blocks", 300/300 by 290, 2/1 x 16, reach 40),
        self_attention_case!("single rows", 5/4 by 1, 3/3 x 16, reach u32::MAX),
        self_attention_case!("nearby rows", 50/49 by 20, 6/3 x 16, reach 4),
        self_attention_case!("only itself", 5/5 by 3, 2/2 x 6, reach 0),
        self_attention_case!("reach over the end", 30/30 by 100, 2/1 x 48, reach 20),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: self_attention::Params = o.params();
        let [q, k, v] = ["q", "k", "v"].map(|name| o.numbers(name));
        let (head, kv_heads) = (p.head_dim as usize, p.kv_heads as usize);
        let group = p.heads as usize / kv_heads;
        let tokens = o.rows();
        rows(o, live, |t, i| {
            let h = i / head;
            let seen = nearby_rows(&tokens[..live], t, p.reach);
            let at = |row: usize| (row * kv_heads + h / group) * head;
            let score = |row: usize| {
                let q = &q[t * group * kv_heads * head + h * head..][..head];
                wide(p.scale) * dot(q, &k[at(row)..])
            };
            softmax(seen.clone().map(score))
                .zip(seen)
                .map(|(weight, row)| weight * wide(v[at(row) + i % head]))
                .sum()
        })
    }
}

macro_rules! attention_scores_case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal, $heads:literal/$kv_heads:literal x $head_dim:literal,
     head $head:literal of $positions:literal, number $index:literal of $count:literal, window $window:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let at = heads([$heads, $kv_heads, $head_dim], $window);
            b.attention_scores(at, q, $head, 0.3, $positions, [$index, $count]);
        })
        .at(0, 640)
        .sequence(2)
        .window($window)
        .cache(DType::$cache)
    };
}

impl Tested for kind::AttentionScores {
    /// All cache types, heads of every place, heads that are not a multiple of the vector width, rings.
    const CASES: &'static [Case] = &[
        attention_scores_case!("one", F32, 1/1, 1/1 x 2, head 0 of 1, number 0 of 1, window 0),
        attention_scores_case!("heads of 64", F16, 5/4, 6/6 x 64, head 5 of 150, number 1 of 3, window 0),
        attention_scores_case!("odd heads", F32, 3/2, 6/3 x 20, head 3 of 77, number 2 of 3, window 0),
        attention_scores_case!("codes", Q8_0, 3/3, 4/2 x 64, head 1 of 130, number 0 of 2, window 0),
        attention_scores_case!("ring", F16, 4/4, 2/2 x 16, head 1 of 150, number 0 of 1, window 150),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::attention_scores::Params = o.params();
        let (q, k, mut y) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("y"));
        let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let rows = o.rows();
        for (t, row) in rows.iter().take(live).enumerate() {
            let q = &q[(t * heads + p.head as usize) * head..][..head];
            for position in 0..p.positions as usize {
                let at = row_of(o, row, [p.stride, p.first, p.ring], position) * kv_heads;
                let k = &k[(at + p.head as usize / (heads / kv_heads)) * head..];
                let column = p.offset as usize + position;
                y[t * p.width as usize + column] = (wide(p.scale) * dot(q, k)) as f32;
            }
        }
        vec![("y", y)]
    }
}

/// Rotates the heads of a row by a position.
fn rotated(p: &rope::Params, freqs: &[f32], position: u32, heads: &[f32]) -> Vec<f32> {
    let mut out = heads.to_vec();
    let half = p.rope_dim as usize / 2;
    for head in out.chunks_exact_mut(p.head_dim as usize) {
        for (i, freq) in freqs[..half].iter().enumerate() {
            let (a, b) = match p.half_split {
                0 => (2 * i, 2 * i + 1),
                _ => (i, i + half),
            };
            // The angle is f32: at large positions its rounding dominates the error.
            let (sin, cos) = wide(position as f32 * freq).sin_cos();
            let (x, y) = (wide(head[a]), wide(head[b]));
            let magnitude = wide(p.magnitude);
            head[a] = (magnitude * (x * cos - y * sin)) as f32;
            head[b] = (magnitude * (x * sin + y * cos)) as f32;
        }
    }
    out
}

/// Rotated queries, and caches with the new keys, which are rotated, and values.
fn rope_kv(
    o: &Outcome,
    live: usize,
    stored: &[(&'static str, &'static str)],
) -> Vec<(&'static str, Vec<f32>)> {
    let p: rope_kv::Params = o.params();
    let turns = rope::Params {
        tokens: p.tokens,
        heads: p.heads,
        head_dim: p.head_dim,
        rope_dim: p.rope_dim,
        half_split: p.half_split,
        magnitude: p.magnitude,
    };
    let [freqs, mut q] = ["freqs", "q"].map(|name| o.numbers(name));
    let new = stored.iter().map(|(x, _)| o.numbers(x));
    let new: Vec<_> = new.collect();
    let caches = stored.iter().map(|(_, cache)| o.numbers(cache));
    let mut caches: Vec<_> = caches.collect();
    let [width, kv_width] = [p.heads, p.kv_heads].map(|heads| (heads * p.head_dim) as usize);
    for (t, row) in o.rows()[..live].iter().enumerate() {
        if row.position >= o.state().context {
            continue;
        }
        let position = row.position as usize;
        let at = row_of(o, row, [p.stride, p.first, p.ring], position) * kv_width;
        let of = |x: &[f32], width: usize| x[t * width..][..width].to_vec();
        let turn = |x: Vec<f32>| rotated(&turns, &freqs, row.position, &x);
        let turned_q = turn(of(&q, width));
        q[t * width..][..width].copy_from_slice(&turned_q);
        for (i, (cache, x)) in caches.iter_mut().zip(&new).enumerate() {
            let x = of(x, kv_width);
            cache[at..][..kv_width].copy_from_slice(&if i == 0 { turn(x) } else { x });
        }
    }
    if of_codes(&o.slots["k_cache"]) {
        // Existing rows are restored exactly from their codes.
        for cache in &mut caches {
            let mut blocks = Vec::new();
            tabla_quant::encode_row(DType::Q8_0, cache, &mut blocks);
            tabla_quant::decode_row(DType::Q8_0, &blocks, cache);
        }
    }
    let caches = stored.iter().map(|(_, name)| *name).zip(caches);
    std::iter::once(("q", q)).chain(caches).collect()
}
