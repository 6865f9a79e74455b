//! Instruction sets: exact products, functions against their exact values, transposes.

use tabla_core::error::ErrorKind;
use tabla_cpu::Level;
use tabla_cpu::internals::math::{exp, ln, max, normal, sum, tanh};
use tabla_cpu::internals::{Isa, Probe, ROWS, Scalar, Simd, Words, transpose};

/// Hash of products with the largest bytes, each sum in its place; holds the maximum code.
struct DotProbe(u8);

impl Probe for DotProbe {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u64 {
        let Self(max) = self;
        // Negative if codes are signed: -128, -127 and 127.
        let codes = match max {
            128 => [128, 129, 127],
            _ => [max, max, max - 1],
        };
        let words: [_; 8] =
            std::array::from_fn(|i| s.bytes(&std::array::from_fn(|at| codes[(at / 9 + i) % 3])));
        let (words, raised) = match max {
            128 => (words.map(|word| s.offset_signed(word)), S::SIGNED_OFFSET),
            _ => (words, 0),
        };
        let x: [[i8; 32]; 4] =
            std::array::from_fn(|t| std::array::from_fn(|i| [127, -127][(i / 5 + t) % 2]));
        let start = |x: &[i8]| {
            let sum: i32 = x.iter().map(|x| i32::from(*x)).sum();
            s.splat_int(-raised * sum)
        };
        let starts: [_; 4] = std::array::from_fn(|t| start(&x[t]));
        let tokens: [&[u8]; 4] = std::array::from_fn(|t| bytemuck::cast_slice(&x[t]));
        let sums = s.dots(max, starts, &words, tokens);
        let stored = s.tile_words(words);
        let tile = s.tile_dots(max, starts, &stored, tokens);
        let second_half = stored[4..].first_chunk::<4>().expect("eight words");
        let starts = std::array::from_fn(|t| start(&x[t][16..]));
        let half = s.tile_dots(max, starts, second_half, tokens.map(|x| &x[16..]));
        let first = s.dot(max, start(&x[0][..4]), &[words[0]], tokens[0]);
        let (w, x) = ([[-128; 64], [127; 64]], [[-127; 64], [113; 64]]);
        let mut all = i64::from(s.dot_i8(&w, &x)).cast_unsigned();
        for sums in sums.into_iter().chain(tile).chain(half).chain([first]) {
            let mut column = [0.0f32; ROWS];
            s.put_column(&mut column, s.floats(sums));
            for sum in column {
                all = all.wrapping_mul(31).wrapping_add(u64::from(sum.to_bits()));
            }
        }
        all
    }
}

#[test]
fn byte_products_are_exact_at_every_level() {
    for level in Level::available() {
        let isa = Isa::of(level).expect("an available level");
        for max in [3, 15, 63, 127, 128] {
            let (found, exact) = (isa.probe(DotProbe(max)), DotProbe(max).run(Scalar));
            assert_eq!(found, exact, "{level:?}, codes up to {max}");
        }
    }
}

#[test]
fn finds_level_by_name() {
    assert_eq!(
        Level::named("scalar").expect("the scalar level is always available"),
        Level::Scalar
    );
    let error = Level::named("sse9").expect_err("no such level");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(Level::available()[0], Level::Scalar);
}

#[test]
fn transpose_swaps_rows_and_columns() {
    let words: Words = std::array::from_fn(|row| {
        std::array::from_fn(|i| [row, i, 0, 1].map(|x| u8::try_from(x).expect("small")))
    });
    let transposed = transpose(words);
    for (i, row) in transposed.iter().enumerate() {
        for (j, word) in row.iter().enumerate() {
            assert_eq!(*word, words[j][i]);
        }
    }
}

fn worst(f: fn(f32) -> f32, exact: fn(f64) -> f64, points: impl Iterator<Item = f32>) -> f64 {
    points
        .map(|x| {
            let y = exact(f64::from(x));
            ((f64::from(f(x)) - y) / y).abs()
        })
        .fold(0.0, f64::max)
}

#[test]
fn exp_is_accurate() {
    let points = (-86_000..88_000).map(|i| i as f32 * 0.001);
    assert!(worst(exp, f64::exp, points) < 2e-7);
    assert_eq!(exp(0.0), 1.0);
    assert!(exp(f32::NAN).is_nan());
    assert!(exp(f32::NEG_INFINITY) < 1e-37);
    assert!(exp(f32::INFINITY).is_finite());
}

#[test]
fn ln_is_accurate_also_near_one() {
    let points = (1..200_000u32)
        .map(|i| i as f32 / 65_536.0)
        .filter(|x| *x != 1.0);
    assert!(worst(ln, f64::ln, points) < 3e-7);
    let near = (1..1000u32).map(|i| 1.0 - i as f32 / 16_777_216.0);
    assert!(worst(ln, f64::ln, near) < 3e-7);
    let far = (-120..120).map(|i| 1.5f32 * 2f32.powi(i));
    assert!(worst(ln, f64::ln, far) < 3e-7);
    assert_eq!(ln(1.0), 0.0);
}

#[test]
fn tanh_is_accurate_also_near_zero() {
    let points = (-10_000..10_000).map(|i| (i as f32 + 0.5) * 0.001);
    assert!(worst(tanh, f64::tanh, points) < 3e-7);
    let near = (1..1000u32).map(|i| i as f32 / 16_777_216.0);
    assert!(worst(tanh, f64::tanh, near) < 2e-7);
    assert_eq!(
        [tanh(1e30), tanh(f32::NEG_INFINITY), tanh(0.0)],
        [1.0, -1.0, 0.0]
    );
    assert!(tanh(f32::NAN).is_nan());
}

/// Computed with the series `1 / 2 + density(x) (x + x^3 / 3 + x^5 / 15 + ...)`.
fn normal_exact(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= x * x / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[test]
fn normal_is_accurate() {
    let points = (-4000..8000).map(|i| i as f32 * 0.001);
    assert!(worst(normal, normal_exact, points) < 7e-7);
    for i in 4000..12_000 {
        let x = i as f32 * -0.001;
        let error = f64::from(normal(x)) - normal_exact(f64::from(x));
        assert!(error.abs() < 1e-10, "{x}: {error}");
    }
    assert_eq!([normal(0.0), normal(1e30)], [0.5, 1.0]);
    assert!(normal(-1e10) < 1e-37);
    assert!(normal(f32::NAN).is_nan());
}

#[test]
fn max_ignores_nan() {
    assert_eq!(max(&[1.0, f32::NAN, 3.0]), 3.0);
    assert_eq!(max(&[]), f32::NEG_INFINITY);
    assert_eq!(sum(&[1.0; 37], |x| x * 2.0), 74.0);
}

#[cfg(target_arch = "x86_64")]
mod amx {
    use tabla_cpu::Level;
    use tabla_cpu::internals::{Avx512, Isa, ROW_BYTES, Simd, Strides, SumTile, TILE, TileShape};

    /// Numbers of every kind: small, large, NaN, subnormal, infinite.
    #[test]
    fn bf16_gemv_matches_tiles() {
        let Some(amx) = Isa::of(Level::Amx).ok().and_then(|isa| isa.amx()) else {
            return;
        };
        let mut state = 1u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        for round in 0..4000 {
            // bf16 numbers with similar exponents, any exponents, or exponents at either end.
            let mut number = |_| {
                let exponent = match round % 4 {
                    0 => 120 + random() % 16,
                    1 => random() % 256,
                    2 => random() % 80,
                    _ => 180 + random() % 76,
                };
                let bits = random() & 0x807f | exponent << 7;
                u16::try_from(bits).expect("16 bits").to_ne_bytes()
            };
            let w: [[u8; 2]; 32 * TILE] = std::array::from_fn(&mut number);
            let x: [[u8; 2]; 32] = std::array::from_fn(&mut number);
            let (w, x) = (w.as_flattened(), x.as_flattened());
            let shape = TileShape {
                rows: 1,
                lanes: TILE,
                wide: false,
            };
            let strides = Strides::rows(ROW_BYTES);
            let span = shape.span(x, strides, [w, &[]], shape.lane_bytes(), 1);
            let mut tiles = [SumTile::ZERO; 4];
            amx.bf16(&[span], &mut tiles);

            let vectors = Avx512::from(amx);
            let lines = w.as_chunks().0.first_chunk().expect("a tile");
            let x = x.first_chunk().expect("a row");
            let alone = amx.bf16_gemv(lines, x, vectors.splat(0.0));
            let mut sums = [0.0; TILE];
            vectors.store(&mut sums, alone);
            for (tile, sum) in tiles[0].0[0].iter().zip(sums) {
                let same = *tile == sum || tile.is_nan() && sum.is_nan();
                assert!(same, "round {round}: {tile:e} by tiles, {sum:e} alone");
            }
        }
    }
}
