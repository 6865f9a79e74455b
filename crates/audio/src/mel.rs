//! Log-mel spectrograms of Whisper, as `whisper/audio.py` of OpenAI computes them.
//!
//! A frame is a window of 400 samples around every 160th sample: its power spectrum, summed up by
//! triangular mel filters, as a logarithm. The largest logarithm of a recording sets the floor of
//! all frames ([`normalize`]), so it must be known before any frame is final.

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tabla_core::error::{Result, bail};

/// Samples per second.
pub const SAMPLE_RATE: u32 = 16_000;
/// Samples between frames: 10 ms.
pub const HOP: usize = 160;
/// Samples of a frame: 25 ms.
const WINDOW: usize = 400;
/// Bins of the spectrum of a frame, 40 Hz apart.
const BINS: usize = WINDOW / 2 + 1;

/// Mel filters: `mels` weighted sums of 201 bins.
#[derive(Clone, Debug)]
pub struct MelFilters {
    rows: Vec<Filter>,
}

/// Weights of consecutive bins; all others are 0.
#[derive(Clone, Debug)]
struct Filter {
    first: usize,
    weights: Vec<f32>,
}

impl MelFilters {
    /// Returns filters that are equally spaced on the mel scale of Slaney's auditory toolbox, from 0
    /// to 8000 Hz, each of the same area, as `librosa.filters.mel` computes them.
    ///
    /// # Panics
    ///
    /// If `mels` is 0.
    pub fn slaney(mels: usize) -> Self {
        assert!(mels > 0, "at least one filter");
        let step = hertz_to_mel(f64::from(SAMPLE_RATE) / 2.0) / (mels + 1) as f64;
        let edges: Vec<f64> = (0..mels + 2)
            .map(|i| mel_to_hertz(i as f64 * step))
            .collect();
        let rows = edges.array_windows().map(|&[low, middle, high]| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded, as the filters of model files are"
            )]
            let weights = (0..BINS).map(|bin| {
                let hertz = bin as f64 * f64::from(SAMPLE_RATE) / WINDOW as f64;
                let rise = (hertz - low) / (middle - low);
                let fall = (high - hertz) / (high - middle);
                (rise.min(fall).max(0.0) * 2.0 / (high - low)) as f32
            });
            Filter::new(&weights.collect::<Vec<_>>())
        });
        Self {
            rows: rows.collect(),
        }
    }

    /// Returns filters that a model file contains, `[mels, 201]`.
    ///
    /// # Errors
    ///
    /// `Argument` if there is no filter, or a part of one.
    pub fn from_rows(filters: &[f32]) -> Result<Self> {
        let (rows, rest) = filters.as_chunks::<BINS>();
        if rows.is_empty() || !rest.is_empty() {
            bail!(
                Argument,
                "mel filters of {} numbers, expected a multiple of {BINS}",
                filters.len()
            );
        }
        Ok(Self {
            rows: rows.iter().map(|row| Filter::new(row)).collect(),
        })
    }

    /// Returns the number of filters.
    pub fn mels(&self) -> usize {
        self.rows.len()
    }

    /// Returns the filters as a model file contains them, `[mels, 201]`.
    pub fn to_rows(&self) -> Vec<f32> {
        let mut all = vec![0.0; self.mels() * BINS];
        for (row, filter) in all.chunks_exact_mut(BINS).zip(&self.rows) {
            row[filter.first..][..filter.weights.len()].copy_from_slice(&filter.weights);
        }
        all
    }
}

impl Filter {
    fn new(row: &[f32]) -> Self {
        let is_set = |w: &f32| *w != 0.0;
        let first = row.iter().position(is_set).unwrap_or(0);
        let end = row.iter().rposition(is_set).map_or(first, |last| last + 1);
        Self {
            first,
            weights: row[first..end].to_vec(),
        }
    }

    fn sum(&self, power: &[f32; BINS]) -> f32 {
        let power = power[self.first..].iter();
        self.weights.iter().zip(power).map(|(w, x)| w * x).sum()
    }
}

/// Hertz per mel below [`LINEAR_HERTZ`].
const HERTZ_PER_MEL: f64 = 200.0 / 3.0;
/// Frequency up to which the scale is linear.
const LINEAR_HERTZ: f64 = 1000.0;
/// Mels per factor of 6.4 above it.
const MELS_PER_FACTOR: f64 = 27.0;

fn hertz_to_mel(hertz: f64) -> f64 {
    if hertz < LINEAR_HERTZ {
        return hertz / HERTZ_PER_MEL;
    }
    let above = (hertz / LINEAR_HERTZ).ln() / 6.4f64.ln();
    LINEAR_HERTZ / HERTZ_PER_MEL + MELS_PER_FACTOR * above
}

fn mel_to_hertz(mel: f64) -> f64 {
    let above = mel - LINEAR_HERTZ / HERTZ_PER_MEL;
    if above < 0.0 {
        return mel * HERTZ_PER_MEL;
    }
    LINEAR_HERTZ * (above / MELS_PER_FACTOR * 6.4f64.ln()).exp()
}

/// Computes log-mel frames.
pub struct LogMel {
    filters: MelFilters,
    /// Periodic Hann window.
    window: [f32; WINDOW],
    transform: Arc<dyn RealToComplex<f32>>,
    /// Working memory of the transform: windowed samples, spectrum, and its own.
    samples: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl fmt::Debug for LogMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogMel of {} filters", self.filters.mels())
    }
}

impl LogMel {
    /// Prepares the transform.
    #[expect(clippy::cast_possible_truncation, reason = "rounds the window")]
    pub fn new(filters: MelFilters) -> Self {
        let transform = RealFftPlanner::new().plan_fft_forward(WINDOW);
        Self {
            filters,
            window: std::array::from_fn(|i| {
                let turn = 2.0 * PI * i as f64 / WINDOW as f64;
                (0.5 - 0.5 * turn.cos()) as f32
            }),
            samples: transform.make_input_vec(),
            spectrum: transform.make_output_vec(),
            scratch: transform.make_scratch_vec(),
            transform,
        }
    }

    /// Returns the number of filters.
    pub fn mels(&self) -> usize {
        self.filters.mels()
    }

    /// Computes frames of a recording, `[frames, mels]`: the decimal logarithm of each filter's power,
    /// at least -10.
    ///
    /// The recording is `samples`, followed by silence up to `len` samples, reflected at both ends. It
    /// has `len / HOP` frames. A frame that contains a sample that is not finite has no defined values.
    ///
    /// # Panics
    ///
    /// If `samples` is empty or longer than `len`, if there are fewer frames, or if `out` is not
    /// `frames.len() * mels` numbers.
    pub fn log_powers(
        &mut self,
        samples: &[f32],
        len: usize,
        frames: Range<usize>,
        out: &mut [f32],
    ) {
        assert!(!samples.is_empty(), "an empty recording has no frames");
        assert!(
            samples.len() <= len,
            "samples after the end of the recording"
        );
        assert!(
            frames.end <= len / HOP,
            "frames after the end of the recording"
        );
        let mels = self.mels();
        assert_eq!(out.len(), frames.len() * mels, "a row per frame");
        for (frame, out) in frames.zip(out.chunks_exact_mut(mels)) {
            self.load(samples, len, frame);
            let (from, to) = (&mut self.samples, &mut self.spectrum);
            let done = self
                .transform
                .process_with_scratch(from, to, &mut self.scratch);
            done.expect("buffers of the transform's own lengths");
            let mut power = [0.0; BINS];
            for (power, x) in power.iter_mut().zip(&self.spectrum) {
                *power = x.norm_sqr();
            }
            for (out, filter) in out.iter_mut().zip(&self.filters.rows) {
                *out = filter.sum(&power).max(1e-10).log10();
            }
        }
    }

    /// Loads the windowed samples of a frame.
    fn load(&mut self, samples: &[f32], len: usize, frame: usize) {
        let (middle, half) = (frame * HOP, WINDOW / 2);
        let whole = middle
            .checked_sub(half)
            .and_then(|first| samples.get(first..first + WINDOW));
        for (i, (to, weight)) in self.samples.iter_mut().zip(&self.window).enumerate() {
            let sample = match whole {
                Some(whole) => whole[i],
                None => {
                    // Reflection leaves out the sample at the end.
                    let at = (middle + i).abs_diff(half).min(2 * len - 2);
                    let at = at.min((2 * len - 2).abs_diff(at));
                    samples.get(at).copied().unwrap_or(0.0)
                }
            };
            *to = weight * sample;
        }
    }
}

/// Makes logarithms the input of a model: at least `max - 8`, where `max` is the largest of the
/// recording, plus 4 and divided by 4.
pub fn normalize(log_powers: &mut [f32], max: f32) {
    for x in log_powers {
        *x = (x.max(max - 8.0) + 4.0) / 4.0;
    }
}
