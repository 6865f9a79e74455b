//! Measures the peak arithmetic rate and memory bandwidth of this machine.

use super::options::LinkOptions;
use super::panel::{QK, WORDS};
use super::simd::Level;
use super::simd::rows::{AHEAD, ROWS, Word, unroll};
use super::simd::{Isa, Probe, Simd};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tabla_core::error::Result;
use tabla_core::reserve;

/// Operations per second of all threads; a multiply-add counts as two. The values are measured, so
/// they are lower on a busy machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    /// int8 products with i32 accumulators, with the instructions that packed weights and many tokens
    /// use at the level.
    pub int8: f64,
    /// Fused multiply-adds of f32.
    pub float: f64,
    /// bf16 products with f32 accumulators, with the instructions that the processor has for them;
    /// without any, in f32.
    pub bf16: f64,
}

/// Duration of each measurement.
const DURATION: Duration = Duration::from_millis(5);
/// Iterations between two clock reads: a few microseconds.
const ROUNDS: u32 = 2048;
/// Independent accumulators: enough for two units with a latency of five cycles, and few enough for
/// 16 registers.
const SUMS: usize = 12;

/// Measures the peak rates for some milliseconds with the threads and level of the options.
///
/// # Errors
///
/// The errors of [`profile`](super::profile).
pub fn peak(options: &LinkOptions) -> Result<Peak> {
    let (isa, threads) = (Isa::of(options.level_or_best()?)?, options.thread_count()?);
    let float = rate(|| isa.probe(FloatProbe), threads);
    let bf16 = isa.probe_bf16();
    Ok(Peak {
        int8: rate(|| isa.probe(Int8Probe), threads),
        float,
        bf16: bf16.map_or(float, |probe| rate(|| probe(ROUNDS), threads)),
    })
}

/// Reads a buffer the way the level's kernels read weights, to measure memory bandwidth. Returns
/// the bitwise OR of all words; bytes after the last whole cache line are not read.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`](tabla_core::error::ErrorKind) for a level that this machine does not
/// support.
pub fn read(level: Level, bytes: &[u8]) -> Result<u64> {
    Ok(Isa::of(level)?.probe(ReadProbe(bytes)))
}

/// Operations per second of all threads: the sum of the highest rate of each, because a mean would
/// include interruptions and the rise of the clock.
fn rate(probe: impl Fn() -> u64 + Sync, threads: usize) -> f64 {
    let measure = &|| {
        let start = Instant::now();
        let mut highest = 0.0f64;
        while start.elapsed() < DURATION {
            let begun = Instant::now();
            let operations = probe() as f64;
            highest = highest.max(operations / begun.elapsed().as_secs_f64());
        }
        highest
    };
    std::thread::scope(|scope| {
        // A thread that cannot be started has no rate.
        let start = |_| {
            let thread = reserve::thread("tabla-peak");
            thread
                .and_then(|thread| thread.spawn_scoped(scope, measure))
                .ok()
        };
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let own = measure();
        let rates = others.into_iter().map(|thread| thread.join());
        own + rates
            .map(|rate| rate.expect("probes do not panic"))
            .sum::<f64>()
    })
}

struct FloatProbe;

impl Probe for FloatProbe {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u64 {
        let [w, x] = black_box([s.splat(1.0), s.splat(0.5)]);
        let mut sums = black_box([x; SUMS]);
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = s.fma(w, x, *sum);
            }
        }
        black_box(sums);
        operations(SUMS * S::LANES)
    }
}

struct Int8Probe;

impl Probe for Int8Probe {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u64 {
        // As many accumulators as registers and their latency allow.
        if const { S::TOKENS >= SUMS } {
            dots::<S, { SUMS / GROUP }>(s)
        } else {
            dots::<S, 1>(s)
        }
    }
}

/// Tokens that are multiplied together, as in the kernels: the addresses of more do not fit the
/// general registers, and loading them takes as long as the products.
const GROUP: usize = 4;

#[inline(always)]
fn dots<S: Simd, const N: usize>(s: S) -> u64 {
    let (words, tokens) = (black_box([[3; _]; WORDS]), black_box([[[1; QK]; GROUP]; N]));
    let mut sums = [[s.splat_int(0); GROUP]; N];
    for _ in 0..ROUNDS {
        // `black_box` keeps the products in the loop at levels that accumulate later.
        let (words, tokens) = black_box((&words, &tokens));
        let mut w = [s.bytes(&words[0]); WORDS];
        for (w, word) in w.iter_mut().zip(words) {
            *w = s.bytes(word);
        }
        unroll!(i < N => {
            let [a, b, c, d] = &tokens[i];
            sums[i] = s.tile_dots(15, sums[i], &w, [&a[..], b, c, d]);
        });
    }
    black_box(sums);
    operations(N * GROUP * QK * ROWS)
}

/// Operations of all iterations with `products` products each.
fn operations(products: usize) -> u64 {
    u64::from(ROUNDS) * 2 * products as u64
}

struct ReadProbe<'a>(&'a [u8]);

const ZEROS: Word = [0; 4 * ROWS];

impl Probe for ReadProbe<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u64 {
        let words: &[Word] = self.0.as_chunks().0;
        let (fours, rest) = words.as_chunks::<4>();
        // At AVX2 an array would be kept in memory.
        let [mut a, mut b, mut c, mut d] = [s.bytes(&ZEROS); 4];
        for four in fours {
            for word in four {
                s.prefetch(word, AHEAD);
            }
            a = s.or(a, s.bytes(&four[0]));
            b = s.or(b, s.bytes(&four[1]));
            c = s.or(c, s.bytes(&four[2]));
            d = s.or(d, s.bytes(&four[3]));
        }
        for word in rest {
            a = s.or(a, s.bytes(word));
        }
        let mut together = ZEROS;
        s.put_bytes(&mut together, s.or(s.or(a, b), s.or(c, d)));
        let numbers = together.as_chunks().0;
        numbers
            .iter()
            .fold(0, |all, number| all | u64::from_ne_bytes(*number))
    }
}
