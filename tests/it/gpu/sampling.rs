//! Tests of the sampling operations against their formulas in f64.

use super::fixture::{Fixture, active_rows, assert_close, floats, random, shape, wide};
use tabla::exec::gpu::Device;
use tabla::exec::state::{FULL, NOT_FINITE, ROWS_OFFSET, STOPPED, sampler_off};
use tabla::op::list::Op;
use tabla::op::pages::Pages;
use tabla::op::params::{Row, Sampler, State};
use tabla::op::sampler::SamplerKind;
use tabla::op::table::BufferId;
use tabla::plan::builder::{LogitRows, Shape};

pub(super) const VOCABS: [u32; 4] = [1, 5, 1000, 4099];

/// Returns the sampled stage, with `x` in `logits` and `s`.
pub(super) fn sampler(device: &Device, vocab: u32, x: &[f32]) -> Fixture {
    let mut fixture = Fixture::new(device, shape(1), vec![], |b| {
        b.sampled_stage(vocab, SamplerKind::DEFAULT);
    });
    fixture.put("logits", x);
    fixture.put("s", x);
    fixture
}

/// Runs one sampler over random logits, some equal and one -inf; returns its input and output.
pub(super) fn filtered(
    device: &Device,
    op: Op,
    vocab: u32,
    change: impl Fn(&mut Sampler),
) -> [Vec<f64>; 2] {
    let mut x: Vec<_> = floats(15, vocab as usize).iter().map(|v| v * 8.0).collect();
    if vocab > 4 {
        (x[1], x[3], x[4]) = (x[2], f32::NEG_INFINITY, -0.0);
    }
    let mut fixture = sampler(device, vocab, &x);
    let mut sampler = Sampler {
        temperature: 1.0,
        ..sampler_off()
    };
    change(&mut sampler);
    fixture.sampler(0, &sampler);
    fixture.state(active_rows(1), &[(0, 3)]);
    fixture.run_op(op);
    [wide(&x), wide(&fixture.get("s"))]
}

/// Replaces the numbers of `x` that `predicate` rejects by -inf.
pub(super) fn masked(x: &[f64], predicate: impl Fn(f64) -> bool) -> Vec<f64> {
    let keep = |&x: &f64| if predicate(x) { x } else { f64::NEG_INFINITY };
    x.iter().map(keep).collect()
}

pub(super) fn descending(x: &[f64]) -> Vec<f64> {
    let mut x = x.to_vec();
    x.sort_by(|a, b| b.total_cmp(a));
    x
}

pub(super) fn top_k(device: &Device) -> f64 {
    for vocab in VOCABS {
        for k in [0, 1, 2, 40, vocab - 1, vocab, vocab + 1] {
            let [x, y] = filtered(device, Op::TopK, vocab, |s| s.top_k = k);
            let off = k == 0 || k >= vocab;
            let least = if off {
                f64::NEG_INFINITY
            } else {
                descending(&x)[k as usize - 1]
            };
            assert_eq!(y, masked(&x, |x| x >= least), "{k} of {vocab}");
        }
    }
    0.0
}

pub(super) fn top_p(device: &Device) -> f64 {
    for vocab in VOCABS {
        for p in [0.0, 0.1, 0.5, 0.9, 0.999, 1.0_f32] {
            let [x, y] = filtered(device, Op::TopP, vocab, |s| s.top_p = p);
            let sorted = descending(&x);
            let mass = |x: f64| (x - sorted[0]).exp();
            let total: f64 = x.iter().map(|&x| mass(x)).sum();
            let mut sum = 0.0;
            let reached = sorted.iter().find(|&&x| {
                sum += mass(x);
                sum >= f64::from(p) * total
            });
            let off = p >= 1.0;
            let least = if off {
                f64::NEG_INFINITY
            } else {
                *reached.expect("p is less than 1")
            };
            assert_eq!(y, masked(&x, |x| x >= least), "{p} of {vocab}");
        }
    }
    0.0
}

pub(super) fn min_p(device: &Device) -> f64 {
    for vocab in VOCABS {
        for p in [0.0, 0.001, 0.05, 0.5, 1.0_f32] {
            let [x, y] = filtered(device, Op::MinP, vocab, |s| s.min_p = p);
            let least = descending(&x)[0] + f64::from(p).ln();
            assert_eq!(y, masked(&x, |x| x >= least), "{p} of {vocab}");
        }
    }
    0.0
}

pub(super) fn temper(device: &Device) -> f64 {
    let mut worst = 0.0;
    for vocab in VOCABS {
        for temperature in [0.0, 0.3, 1.0, 2.5_f32] {
            let [x, y] = filtered(device, Op::Temper, vocab, |s| s.temperature = temperature);
            let by = match temperature {
                0.0 => 1.0,
                t => f64::from(t),
            };
            let expected = x.iter().map(|x| x / by);
            for (y, expected) in y.iter().zip(expected) {
                assert!(
                    y == &expected || (y - expected).abs() <= 1e-6 * expected.abs(),
                    "{y} {expected}"
                );
                worst = if expected.is_finite() {
                    (y - expected).abs().max(worst)
                } else {
                    worst
                };
            }
        }
    }
    worst
}

/// Rows of several sequences, each with its own sampler, must give the same token as a single row.
pub(super) fn rows(device: &Device) -> f64 {
    const VOCAB: u32 = 1003;
    let sampler = |sequence: u32| Sampler {
        seed_lo: 5 * sequence,
        temperature: [0.0, 0.7, 1.0, 1.9][sequence as usize % 4],
        top_k: [0, 40, 200][sequence as usize % 3],
        top_p: [1.0, 0.9][sequence as usize % 2],
        min_p: [0.0, 0.02][sequence as usize / 2 % 2],
        repetition_penalty: 1.0 + sequence as f32 / 8.0,
        repeat_last_n: 10 * sequence,
        ..sampler_off()
    };
    let row = |t: u32| Row {
        token: 1,
        position: 3 + 11 * t,
        sequence: (3 * t + 1) % 7,
        ..Row::default()
    };
    let mut logits = floats(21, 6 * VOCAB as usize);
    logits.iter_mut().for_each(|v| *v *= 8.0);
    let mut next = random(22);
    let mut word = || u32::try_from(next() % u64::from(VOCAB)).unwrap();
    let history: Vec<u32> = (0..7 * 512).map(|_| word()).collect();
    let draw = |rows: &[Row], logits: &[f32]| {
        let tokens = u32::try_from(rows.len()).unwrap();
        let shape = Shape {
            logits: LogitRows::All,
            sequences: 7,
            pages: Pages::new(7, 512, &[], tokens),
            ..shape(tokens)
        };
        let mut fixture = Fixture::new(device, shape, vec![], |b| {
            b.sampled_stage(VOCAB, SamplerKind::DEFAULT);
        });
        fixture.put("scores", logits);
        let bytes = bytemuck::cast_slice(&history);
        fixture.executor.write(BufferId::History, 0, bytes).unwrap();
        (0..7).for_each(|sequence| fixture.sampler(sequence, &sampler(sequence)));
        fixture.rows(active_rows(tokens), rows);
        fixture.run();
        let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&fixture.bytes("ids"));
        (fixture.get("s"), ids)
    };
    let rows: Vec<Row> = (0..6).map(row).collect();
    let (scores, ids) = draw(&rows, &logits);
    for (t, row) in rows.iter().enumerate() {
        let at = t * VOCAB as usize..(t + 1) * VOCAB as usize;
        let (alone, id) = draw(std::slice::from_ref(row), &logits[at.clone()]);
        assert_eq!(alone, scores[at], "row {t}");
        assert_eq!(id[0], ids[t], "row {t}");
    }
    assert!(ids.iter().any(|id| *id != ids[0]), "{ids:?}");
    0.0
}

pub(super) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    let halves = |a: u32, b: u32| {
        let p = u64::from(a) * u64::from(b);
        [u32::try_from(p >> 32).unwrap(), a.wrapping_mul(b)]
    };
    for _ in 0..10 {
        let ([h0, l0], [h1, l1]) = (halves(0xd251_1f53, a), halves(0xcd9e_8d57, c));
        (a, b, c, d) = (h1 ^ b ^ k0, l1, h0 ^ d ^ k1, l0);
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    [a, b, c, d]
}

pub(super) fn gumbel(device: &Device) -> f64 {
    // The first known-answer test of Random123.
    let known = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    assert_eq!(philox([0; 4], [0; 2]), known);
    let mut worst = 0.0;
    for vocab in VOCABS {
        let [x, y] = filtered(device, Op::Gumbel, vocab, |s| {
            (s.seed_lo, s.seed_hi) = (0xdead_beef, 17);
        });
        let noise = |i: u32| {
            let word = philox([i / 4, 4, 0, 0], [0xdead_beef, 17])[i as usize % 4];
            let u = (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
            -(-u.ln()).ln()
        };
        let expected: Vec<_> = (0..).zip(&x).map(|(i, x)| x + noise(i)).collect();
        let finite = |v: &f64| v.is_finite() || *v == f64::NEG_INFINITY;
        assert!(y.iter().all(finite), "{y:?}");
        #[expect(clippy::cast_possible_truncation, reason = "these were f32")]
        let y: Vec<_> = y.iter().map(|&y| y as f32).collect();
        worst = assert_close("gumbel", &y, &expected, 1e-6).max(worst);
    }
    worst
}

pub(super) fn penalize(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (vocab, last, position) in [(5, 3, 10), (1000, 64, 20), (4099, 5000, 511), (1000, 0, 7)] {
        let x = floats(16, vocab as usize);
        let mut fixture = sampler(device, vocab, &x);
        let mut next = random(17);
        let history: Vec<_> = (0..512)
            .map(|_| u32::try_from(next() % u64::from(vocab)).unwrap())
            .collect();
        let bytes = bytemuck::cast_slice(&history);
        fixture.executor.write(BufferId::History, 0, bytes).unwrap();
        let sampler = Sampler {
            repetition_penalty: 1.3,
            repeat_last_n: last,
            ..sampler_off()
        };
        fixture.sampler(0, &sampler);
        fixture.state(active_rows(1), &[(0, position)]);
        fixture.run_op(Op::Penalize);
        let end = position as usize + 1;
        let recent = &history[end - end.min(last as usize).min(1024)..end];
        let expected = (0..).zip(wide(&x)).map(|(i, x)| {
            let penalty = f64::from(if recent.contains(&i) { 1.3_f32 } else { 1.0 });
            if x > 0.0 { x / penalty } else { x * penalty }
        });
        let expected: Vec<_> = expected.collect();
        worst = assert_close("penalize", &fixture.get("s"), &expected, 1e-6).max(worst);
    }
    worst
}

pub(super) fn greedy(device: &Device, x: &[f32]) -> Fixture {
    let vocab = u32::try_from(x.len()).unwrap();
    // Long rows are divided.
    let shape = Shape {
        part: 64,
        ..shape(1)
    };
    let mut fixture = Fixture::new(device, shape, vec![], |b| b.greedy_stage(vocab));
    fixture.put("logits", x);
    fixture
}

/// Returns the logits after a number of NaN.
fn after_nan(x: &[f32], count: u32) -> Vec<f32> {
    (0..count)
        .map(|_| f32::NAN)
        .chain(x.iter().copied())
        .collect()
}

pub(super) fn argmax(device: &Device) -> f64 {
    let inf = f32::NEG_INFINITY;
    let mut ties = vec![0.5; 4099];
    (ties[700], ties[300], ties[4098]) = (2.0, 2.0, 2.0);
    let nan = [f32::NAN, -3.0, f32::NAN, -2.0, -2.0];
    let picks: [(&[f32], u32); 4] = [
        (&[-1.0], 0),
        (&ties, 300),
        (&nan, 3),
        (&[inf, -9.0, inf], 1),
    ];
    // Of whole rows, and of several parts, one without a number.
    let picks = [0, 5000]
        .iter()
        .flat_map(|count| picks.iter().map(move |pick| (*count, *pick)));
    for (count, (x, id)) in picks {
        let (x, expected) = (after_nan(x, count), count + id);
        let mut fixture = greedy(device, &x);
        fixture.state(active_rows(1), &[(9, 6)]);
        fixture.run();
        let (state, row) = fixture.state_now();
        assert_eq!((row.token, row.position), (expected, 7), "{x:?}");
        assert_eq!((state.active_rows, state.step, row.done), (1, 1, 0));
        let history: Vec<u32> = bytemuck::pod_collect_to_vec(&fixture.bytes("history"));
        assert_eq!(history[7], expected);
    }
    for x in [
        [inf; 3],
        [f32::NAN; 3],
        [f32::INFINITY; 3],
        [f32::NAN, inf, f32::INFINITY],
    ]
    .iter()
    .flat_map(|x| [0, 5000].map(|count| after_nan(x, count)))
    {
        let mut fixture = greedy(device, &x);
        fixture.state(active_rows(1), &[(9, 6)]);
        fixture.run();
        let (state, row) = fixture.state_now();
        assert_eq!(
            (row.token, row.position, row.done),
            (9, 6, NOT_FINITE),
            "{x:?}"
        );
        assert_eq!((state.active_rows, state.step), (0, 1));
    }
    let mut fixture = greedy(device, &ties);
    let mut sampler = sampler_off();
    (sampler.stops[1], sampler.stop_count) = (300, 1);
    fixture.sampler(0, &sampler);
    fixture.state(active_rows(1), &[(0, 0)]);
    fixture.run();
    assert_eq!(
        fixture.state_now().1.done,
        0,
        "only one of two stops is enabled"
    );
    sampler.stop_count = 2;
    fixture.sampler(0, &sampler);
    fixture.state(active_rows(1), &[(0, 0)]);
    fixture.run();
    let (state, row) = fixture.state_now();
    assert_eq!((row.done, state.active_rows), (STOPPED, 0));
    fixture.sampler(0, &sampler_off());
    fixture.state(active_rows(1), &[(0, 511)]);
    fixture.run();
    let (state, row) = fixture.state_now();
    assert_eq!((row.done, state.active_rows, row.position), (FULL, 0, 512));
    0.0
}

/// Sets a stop token of a sequence.
fn stop_at(fixture: &mut Fixture, sequence: u32, token: u32) {
    let mut sampler = sampler_off();
    sampler.stops[0] = token;
    sampler.stop_count = 1;
    fixture.sampler(sequence, &sampler);
}

/// Returns row `t` of a sequence with a different index; some are full after the next token.
fn elsewhere(t: u32, rows: u32) -> Row {
    Row {
        token: 1,
        position: if t % 5 == 2 { 7 } else { t % 6 },
        sequence: (t + 3) % rows,
        ..Row::default()
    }
}

/// Rows of several sequences, some of which finish: each takes the largest of its own logits.
pub(super) fn advance(device: &Device) -> f64 {
    const ROWS: usize = 70;
    const LIVE: u32 = 65;
    const VOCAB: usize = 300;
    // Each sequence has its own stop token; the stop tokens of others do not apply.
    const STOPPING: [u32; 4] = [0, 4, 7, 64];
    let tokens = u32::try_from(ROWS).unwrap();
    let shape = Shape {
        logits: LogitRows::All,
        sequences: tokens,
        context: 8,
        pages: Pages::new(tokens, 8, &[], tokens),
        ..shape(tokens)
    };
    let vocab = u32::try_from(VOCAB).unwrap();
    let expected: Vec<u32> = (0..tokens).map(|t| t * 7 % vocab).collect();
    let mut fixture = Fixture::new(device, shape, vec![], |b| b.greedy_stage(vocab));
    let mut logits = floats(20, ROWS * VOCAB);
    for (row, id) in logits.chunks_mut(VOCAB).zip(&expected) {
        row[*id as usize] = 9.0;
    }
    fixture.put("scores", &logits);
    let rows: Vec<Row> = (0..tokens).map(|t| elsewhere(t, tokens)).collect();
    let state = State {
        active_rows: LIVE,
        context: 8,
        ..active_rows(1)
    };
    for t in 0..tokens {
        let next = u32::from(!STOPPING.contains(&t));
        stop_at(
            &mut fixture,
            (t + 3) % tokens,
            expected[(t + next) as usize % ROWS],
        );
    }
    fixture.rows(state, &rows);
    let mut history = vec![77u32; ROWS * 8];
    fixture.put("history", bytemuck::cast_slice(&history));
    fixture.run();

    let bytes = fixture.bytes("state");
    let actual: State = bytemuck::pod_read_unaligned(&bytes[..ROWS_OFFSET]);
    let after: Vec<Row> = bytemuck::pod_collect_to_vec(&bytes[ROWS_OFFSET..]);
    let mut ended = 0;
    for (t, before) in rows.iter().enumerate() {
        let at = after.iter().position(|row| row.sequence == before.sequence);
        let (at, row) = (at.unwrap(), after[at.unwrap()]);
        if t >= LIVE as usize {
            assert_eq!((at, row), (t, *before), "row {t} is inactive");
            continue;
        }
        let done = match u32::try_from(t).unwrap() {
            t if STOPPING.contains(&t) => STOPPED,
            _ if before.position == 7 => FULL,
            _ => 0,
        };
        let next = (expected[t], before.position + 1, done);
        assert_eq!((row.token, row.position, row.done), next, "row {t}");
        assert_eq!(
            at < actual.active_rows as usize,
            done == 0,
            "row {t} is at {at}"
        );
        ended += u32::from(done != 0);
        if row.position < 8 {
            history[row.sequence as usize * 8 + row.position as usize] = expected[t];
        }
    }
    assert_eq!((actual.active_rows, actual.step), (LIVE - ended, 1));
    let history: &[u8] = bytemuck::cast_slice(&history);
    assert_eq!(fixture.bytes("history"), history);
    0.0
}
