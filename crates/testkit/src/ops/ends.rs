//! Cases of the first and last operations of a table: embeddings, logits, sampled tokens.

use super::common::{rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::dtype::DType;
use tabla_core::exec::state::NO_TOKEN;
use tabla_core::op::kind;
use tabla_core::op::params;
use tabla_plan::builder::LogitRows;

macro_rules! embed_case {
    ($name:literal, $dtype:ident, $rows:literal, $cols:literal, $tokens:literal, $live:literal) => {
        Case::new(
            concat!($name, " ", stringify!($dtype)),
            $tokens,
            $live,
            |b| {
                let w = b.weight("w", $rows, $cols);
                b.embed(w);
            },
        )
        .weights(&[("w", DType::$dtype, $rows, $cols)])
        .tolerance(0.0)
    };
}

impl Tested for kind::Embed {
    /// Includes tokens out of range: random ids are below twice the number of rows.
    const CASES: &'static [Case] = &[
        embed_case!("one", F32, 1, 1, 1, 1),
        embed_case!("primes", F32, 5, 37, 3, 2),
        embed_case!("primes", F16, 11, 67, 5, 4),
        embed_case!("partial block", Bf16, 7, 33, 2, 2),
        embed_case!("odd blocks", Q8_0, 9, 96, 4, 3),
        embed_case!("odd blocks", Q4_0, 9, 96, 4, 4),
        embed_case!("odd blocks", Q4_1, 9, 96, 4, 2),
        embed_case!("many", Q4_0, 50, 256, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
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
}

macro_rules! embed_add_case {
    ($name:literal, $dtype:ident, $shape:expr, $place:expr, $tokens:literal, $live:literal) => {
        Case::new(
            concat!($name, " ", stringify!($dtype)),
            $tokens,
            $live,
            |b| {
                let w = b.weight("w", $shape[0], $shape[1]);
                let y = b.input("y", $shape[1]);
                b.embed_add(w, y, $place[0], $place[1]);
            },
        )
        .at(2, 16)
        .weights(&[("w", DType::$dtype, $shape[0], $shape[1])])
        .tolerance(0.0)
    };
}

impl Tested for kind::EmbedAdd {
    /// Strides and offsets; the first position is 2, some rows are out of range.
    const CASES: &'static [Case] = &[
        Case::new("token types F32", 5, 4, |b| {
            let w = b.weight("w", 2, 37);
            let y = b.input("y", 37);
            b.embed_add_type(w, y);
        })
        .weights(&[("w", DType::F32, 2, 37)])
        .tolerance(0.0),
        embed_add_case!("one", F32, [3, 1], [1, 0], 1, 1),
        embed_add_case!("beyond the last", F32, [5, 37], [1, 0], 5, 4),
        embed_add_case!("primes", F16, [11, 67], [1, 0], 5, 4),
        embed_add_case!("one row for all tokens", Bf16, [7, 33], [0, 1], 3, 2),
        embed_add_case!("with an offset", F32, [9, 40], [1, 2], 4, 3),
        embed_add_case!("odd blocks", Q8_0, [9, 96], [2, 1], 4, 3),
        embed_add_case!("many", Q4_0, [50, 256], [1, 0], 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
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
}

macro_rules! last_row_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $dim);
            b.logit_rows(x);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::LastRow {
    /// The first, a middle and the last row.
    const CASES: &'static [Case] = &[
        last_row_case!("first", 1, 2, 1),
        last_row_case!("middle", 37, 5, 3),
        last_row_case!("last", 257, 4, 4),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        vec![("y", last_row(o, live))]
    }
}

macro_rules! argmax_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| b.greedy_stage($vocab))
            .logits(LogitRows::All)
            .tolerance(0.0)
    };
}

impl Tested for kind::Argmax {
    /// One row and several, up to and above the work unit of a thread.
    const CASES: &'static [Case] = &[
        argmax_case!("one", 1, 1 / 1),
        argmax_case!("a row", 37, 1 / 1),
        argmax_case!("several work units", 1025, 1 / 1),
        argmax_case!("rows", 131, 5 / 3),
        argmax_case!("several rows per thread", 2053, 7 / 6),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, mut ids) = (o.numbers("x"), o.numbers("ids"));
        let vocab = o.slots["x"].cols as usize;
        for (id, x) in ids.iter_mut().zip(x.chunks(vocab)).take(live) {
            let largest = x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
            let first = x.iter().position(|x| *x == largest && x.is_finite());
            *id = first.map_or(NO_TOKEN as f32, |first| first as f32);
        }
        vec![("ids", ids)]
    }
}

macro_rules! argmax_parts_case {
    ($name:literal, $vocab:literal by $part:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $vocab);
            b.argmax_of_parts(x, $part);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::ArgmaxPart {
    /// One part and several, the last one whole or partial.
    const CASES: &'static [Case] = &[
        argmax_parts_case!("one element", 1 by 4, 1/1),
        argmax_parts_case!("one part", 37 by 64, 3/2),
        argmax_parts_case!("small parts", 131 by 8, 5/3),
        argmax_parts_case!("whole parts", 9216 by 4608, 2/2),
        argmax_parts_case!("partial part", 8999 by 4096, 1/1),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, mut ids) = (o.numbers("x"), o.numbers("ids"));
        let p: params::argmax_part::Params = o.params();
        let [vocab, part, parts] = [p.vocab, p.part, p.parts].map(|n| n as usize);
        for (t, x) in x.chunks(vocab).take(live).enumerate() {
            for (i, x) in x.chunks(part).enumerate() {
                let largest = x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
                let first = x.iter().position(|x| *x == largest).expect("a largest");
                ids[t * parts + i] = (i * part + first) as f32;
            }
        }
        vec![("ids", ids)]
    }
}

impl Tested for kind::ArgmaxJoin {
    /// One part and several, more than lanes of a workgroup; random ids are below 50.
    const CASES: &'static [Case] = &[
        argmax_parts_case!("one part", 60 by 64, 1/1),
        argmax_parts_case!("parts", 131 by 8, 5/3),
        argmax_parts_case!("many parts", 2053 by 4, 3/3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let [x, parts, mut ids] = ["x", "parts", "ids"].map(|name| o.numbers(name));
        let p: params::argmax_join::Params = o.params();
        let [vocab, count] = [p.vocab, p.parts].map(|n| n as usize);
        for (t, id) in ids.iter_mut().enumerate().take(live) {
            let own = parts[t * count..][..count].iter();
            let value = |id: f32| wide(x[t * vocab + id as usize]);
            let largest = own.clone().fold(f64::MIN, |m, id| m.max(value(*id)));
            let first = own.filter(|id| value(**id) == largest);
            *id = first.fold(f32::MAX, |least, id| least.min(*id));
        }
        vec![("ids", ids)]
    }
}

macro_rules! advance_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal, $sampler:expr) => {
        Case::new($name, $tokens, $live, |b| b.greedy_stage(50))
            .at($position, $context)
            .sampled_rows()
            .sampler($sampler)
            .tolerance(0.0)
    };
}

impl Tested for kind::Advance {
    /// Continuing, stopping, filling the context; random ids are below 50.
    const CASES: &'static [Case] = &[
        advance_case!("continuing", 1/1 at 3 of 8, |_| {}),
        advance_case!("full", 1/1 at 7 of 8, |_| {}),
        advance_case!("rows", 5/3 at 3 of 8, |_| {}),
        advance_case!("full rows", 4/4 at 7 of 8, |_| {}),
        advance_case!("some rows stop", 16/15 at 2 of 8, |s| {
            s.stops = std::array::from_fn(|i| u32::try_from(i).expect("few stop tokens"));
            s.stop_count = 25;
        }),
    ];

    /// Returns the history only; rows have a separate test.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let (ids, mut history) = (o.numbers("ids"), o.numbers("history"));
        let context = o.slots["history"].cols as usize;
        for (row, id) in o.rows()[..live].iter().zip(ids) {
            let position = row.position as usize + 1;
            if position < context {
                history[row.sequence as usize * context + position] = id;
            }
        }
        vec![("history", history)]
    }
}

fn last_row(o: &Outcome, live: usize) -> Vec<f32> {
    let x = o.numbers("x");
    let cols = o.slots["x"].cols as usize;
    x[(live - 1) * cols..][..cols].to_vec()
}
