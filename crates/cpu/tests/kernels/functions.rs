//! Functions inside kernels, on inputs computed by hand.

use std::iter::once;
use tabla_core::exec::state::{FULL, NO_TOKEN, NOT_FINITE, STOPPED, sampler_off};
use tabla_core::op::params::{Logprobs, Row, Sampler, State};
use tabla_cpu::internals::{
    BINS, QK, Scalar, Softmax, advance, argmax, bit_quantize, by_size, largest, logprobs,
    quantize_block, repetitions, sigma, sort_by_expert, threshold,
};

#[test]
fn finished_rows_move_to_the_end() {
    let row = |sequence, position| Row {
        sequence,
        position,
        ..Row::default()
    };
    let mut rows = [row(2, 1), row(0, 0), row(3, 3), row(1, 2)];
    let mut state = State {
        active_rows: 4,
        context: 4,
        ..State::default()
    };
    let mut samplers = [sampler_off(); 4];
    (samplers[2].stops[0], samplers[2].stop_count) = (9, 1);
    let mut history = [0; 16];
    advance(
        &[9, 5, 6, 7],
        &samplers,
        &mut state,
        &mut rows,
        &mut history,
    );
    let of = |row: &Row| (row.sequence, row.token, row.position, row.done);
    let found: Vec<_> = rows.iter().map(of).collect();
    assert_eq!(
        found,
        [
            (1, 7, 3, 0),
            (0, 5, 1, 0),
            (3, 6, 4, FULL),
            (2, 9, 2, STOPPED)
        ]
    );
    assert_eq!((state.active_rows, state.step), (2, 1));
    assert_eq!(history, [0, 5, 0, 0, 0, 0, 0, 7, 0, 0, 9, 0, 0, 0, 0, 0]);

    (samplers[0].stops[0], samplers[0].stop_count) = (9, 1);
    let ids = [1, 9];
    advance(&ids, &samplers, &mut state, &mut rows[..2], &mut history);
    let found: Vec<_> = rows.iter().map(of).collect();
    assert_eq!(
        found,
        [
            (0, 9, 2, STOPPED),
            (1, 1, 4, FULL),
            (3, 6, 4, FULL),
            (2, 9, 2, STOPPED)
        ]
    );
    assert_eq!((state.active_rows, state.step), (0, 2));
}

#[test]
fn rows_without_a_token_end_unchanged() {
    let row = |sequence, token| Row {
        sequence,
        token,
        position: 1,
        ..Row::default()
    };
    let mut rows = [row(0, 7), row(1, 8)];
    let mut state = State {
        active_rows: 2,
        context: 4,
        ..State::default()
    };
    let mut history = [5; 8];
    advance(
        &[NO_TOKEN, 3],
        &[sampler_off(); 2],
        &mut state,
        &mut rows,
        &mut history,
    );
    assert_eq!(
        (state.active_rows, rows[0].token, rows[0].position),
        (1, 3, 2)
    );
    let ended = Row {
        done: NOT_FINITE,
        ..row(0, 7)
    };
    assert_eq!(rows[1], ended);
    assert_eq!(history, [5, 5, 5, 5, 5, 5, 3, 5]);
}

#[test]
fn stop_token_at_last_position_stops() {
    let mut rows = [Row {
        position: 3,
        ..Row::default()
    }];
    let mut state = State {
        active_rows: 1,
        context: 4,
        ..State::default()
    };
    let samplers = [Sampler {
        stop_count: 1,
        ..sampler_off()
    }];
    advance(&[0], &samplers, &mut state, &mut rows, &mut [0; 4]);
    assert_eq!(rows[0].done, STOPPED);
}

#[test]
fn argmax_returns_lowest_index_and_ignores_nan() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
    assert_eq!(argmax(&[f32::NAN, -1.0, f32::NAN]), 1);
    assert_eq!(argmax(&[f32::NEG_INFINITY, -1.0, f32::NEG_INFINITY]), 1);
    for not_finite in [f32::NEG_INFINITY, f32::NAN, f32::INFINITY] {
        assert_eq!(argmax(&[not_finite; 3]), NO_TOKEN);
    }
    assert_eq!(argmax(&[1.0, f32::INFINITY, f32::NAN]), NO_TOKEN);
    let mut x = vec![0.0; 3000];
    (x[1023], x[2999]) = (5.0, 5.0);
    assert_eq!(argmax(&x), 1023);
}

#[test]
fn bit_quantize_matches_row_computed_by_hand() {
    let mut q = [9; 64];
    let d = bit_quantize(&[127.0, -127.0, 2.5, 3.5, -0.5, 0.0], &mut q);
    assert_eq!(d, 1.0);
    assert_eq!(
        q[..8].iter().map(|q| q.cast_signed()).collect::<Vec<_>>(),
        [127, -127, 2, 4, 0, 0, 0, 0]
    );
    assert_eq!(q[8..], [0; 56]);
}

#[test]
fn bit_quantize_clamps_scale_and_rejects_non_finite_rows() {
    let mut q = [9; 64];
    assert!((bit_quantize(&[1e-6, 0.0], &mut q) - 1e-5 / 127.0).abs() < 1e-13);
    assert_eq!(q[..2], [13, 0]);
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(bit_quantize(&[1.0, x], &mut q).is_nan());
        assert_eq!(q, [0; 64]);
    }
}

fn repetitions_of(seen: &[u32], breakers: &[u32]) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    repetitions(seen, breakers, |token, n| {
        if n > 0 {
            found.push((token, n));
        }
    });
    found
}

#[test]
fn repetitions_match_suffix_without_breakers() {
    let seen = [1, 2, 3, 4, 9, 2, 3, 7, 1, 2, 3];
    assert_eq!(repetitions_of(&seen, &[0]), [(4, 3), (7, 2)]);
    // Token 2 is a breaker.
    assert_eq!(repetitions_of(&seen, &[1 << 2]), [(4, 1), (7, 1)]);
    assert_eq!(repetitions_of(&seen, &[1 << 3]), []);
    assert_eq!(repetitions_of(&[5, 5, 5], &[0]), [(5, 1), (5, 2)]);
    assert_eq!(repetitions_of(&[5], &[0]), []);
}

#[test]
fn sorts_pairs_by_expert() {
    let mut order = [0; 6];
    sort_by_expert(&[2, 0, 9, 2, 7, 0], 3, &mut order);
    assert_eq!(order, [1, 5, 0, 3, 2, 4]);
}

fn found(x: &[f32], id: u32) -> Logprobs {
    logprobs(x, id, &mut vec![0.0; x.len()])
}

#[test]
fn logprobs_are_sorted_with_lowest_id_first_on_ties() {
    let third = -(3f32.ln());
    let few = found(&[5.0, f32::NAN, 5.0, f32::NEG_INFINITY, 5.0], 2);
    assert_eq!((few.token, few.count), (2, 4));
    assert_eq!(few.tokens[..4], [0, 2, 4, 3]);
    assert!((few.logprob - third).abs() < 1e-6);
    assert!((few.logprobs[2] - third).abs() < 1e-6);
    assert_eq!(few.logprobs[3], f32::NEG_INFINITY);

    let one = found(&[-7.0], 0);
    assert_eq!((one.count, one.tokens[0], one.logprob), (1, 0, 0.0));

    let many: Vec<f32> = (0..1000u16).map(|i| f32::from(i % 100)).collect();
    let many = found(&many, 0);
    let expected: Vec<u32> = (0..10).flat_map(|i| [100 * i + 99]).collect();
    assert_eq!(many.tokens[..10], expected);
    let expected: Vec<u32> = (0..10).flat_map(|i| [100 * i + 98]).collect();
    assert_eq!(many.tokens[10..], expected);
}

#[test]
fn matches_block_computed_by_hand() {
    let x: [f32; QK] = std::array::from_fn(|i| i as f32 * 8.0 - 127.0);
    let mut q = [0; QK];
    let (d, sums) = quantize_block(Scalar, &x, &mut q);
    assert_eq!(d, 1.0);
    assert_eq!(q[0].cast_signed(), -127);
    assert_eq!(q[31].cast_signed(), 121);
    assert_eq!(sums, [-1072, 976]);
}

#[test]
fn zeros_and_subnormals_quantize_to_zero() {
    for x in [0.0, 1e-42] {
        let mut q = [7; QK];
        let (_, sums) = quantize_block(Scalar, &[x; QK], &mut q);
        assert_eq!((q, sums), ([0; QK], [0; 2]));
    }
}

#[test]
fn largest_orders_ties_by_index_and_nan_last() {
    let mut ids = [9; 6];
    largest(
        &[-0.0, 2.0, f32::NAN, 0.0, 2.0, f32::NEG_INFINITY],
        &mut ids,
    );
    assert_eq!(ids, [1, 4, 0, 3, 5, 2]);
}

#[test]
fn softmax_ignores_nan_and_negative_infinity() {
    let y = [0.0, f32::NAN, f32::NEG_INFINITY, 0.0];
    let softmax = Softmax::of(&y).expect("two numbers");
    assert_eq!((softmax.peak, softmax.total), (0.0, 2.0));
    assert!((softmax.entropy(once(&y[..])) - 2f32.ln()).abs() < 1e-6);
    assert!(Softmax::of(&[f32::NAN, f32::NEG_INFINITY]).is_none());
    assert!(Softmax::of(&[0.0, f32::INFINITY]).is_none());
}

#[test]
fn top_k_threshold_matches_sorting() {
    let mut seed = 1u32;
    let y: Vec<f32> = (0..3001)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Few distinct numbers, so that there are ties.
            (seed >> 22) as f32
        })
        .collect();
    let mut sorted = y.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut scratch = vec![0.0; y.len()];
    for k in [1, 2, 3, 39, 40, 41, 300, 1500, 3000] {
        assert_eq!(threshold(&y, k, &mut scratch), Some(sorted[k - 1]), "{k}");
    }
}

#[test]
fn sigma_ignores_nan_and_negative_infinity() {
    let y = [1.0, f32::NAN, 3.0, f32::NEG_INFINITY];
    assert_eq!(sigma(once(&y[..])), 1.0);
}

#[test]
fn top_p_set_matches_sorting() {
    let y: Vec<f32> = (0..1000u32)
        .map(|i| ((i * 7919) % 1000) as f32 * 0.0113)
        .collect();
    let mut sorted = y.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let total: f64 = sorted.iter().map(|y| f64::from(*y).exp()).sum();
    let mut scratch = vec![0.0; BINS + y.len()];
    for p in [0.0, 0.1, 0.5, 0.9, 0.99] {
        let mut mass = 0.0;
        let expected = sorted.iter().find(|y| {
            mass += f64::from(**y).exp();
            mass >= f64::from(p) * total
        });
        let found = by_size(sorted[0]).cutoff(once(&y[..]), p, &mut scratch);
        assert_eq!(found, expected.copied(), "{p}");
    }
    let infinite = [f32::NEG_INFINITY; 4];
    assert_eq!(
        by_size(0.0).cutoff(once(&infinite[..]), 0.5, &mut scratch),
        None
    );
}
