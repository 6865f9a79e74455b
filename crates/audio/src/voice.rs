//! Voice activity detection with Silero's network, as whisper.cpp computes it.
//!
//! Each window of 512 samples is reflected by 64 samples at both sides. A convolution with a Fourier
//! basis gives four spectra of 129 magnitudes, four convolutions reduce them to one vector, and an LSTM
//! and a linear layer give the probability of speech. Silero's own package puts the last 64 samples of
//! the previous window before a window instead of the reflection.
//!
//! Inputs of convolutions are rounded to f16, as ggml does. Without it, probabilities differ from those
//! of whisper.cpp by up to 0.007.

use crate::voice_file::{MAX_BYTES, parse};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tabla_core::error::{Context, Error, ErrorKind, Result};

/// Samples of a window, at 16 kHz: 32 ms.
pub const VOICE_WINDOW: usize = 512;
/// Samples by which a window is reflected at each side.
const REFLECTED: usize = 64;
/// Samples of a reflected window.
const PADDED: usize = VOICE_WINDOW + 2 * REFLECTED;
/// Samples of a spectrum, samples between spectra, and spectra per window.
const TAPS: usize = 256;
const STRIDE: usize = 128;
const SPECTRA: usize = (PADDED - TAPS) / STRIDE + 1;
/// Magnitudes of a spectrum.
const BINS: usize = 129;
/// Channels after the encoder layers, and of the LSTM.
const WIDE: usize = 128;
const NARROW: usize = 64;
/// Gates of the LSTM: input, forget, cell, output.
const GATES: usize = 4 * WIDE;

/// Weights of Silero's voice activity model.
pub struct VoiceModel {
    version: [usize; 3],
    /// Real parts, then imaginary parts.
    basis: Linear,
    encoder: [Linear; 4],
    /// Gates from the output of the encoder and the hidden state.
    gates: Linear,
    output_weights: Vec<f32>,
    output_bias: f32,
}

impl fmt::Debug for VoiceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "VoiceModel of Silero {major}.{minor}.{patch}")
    }
}

impl VoiceModel {
    /// Loads a model file of whisper.cpp, such as `ggml-silero-v6.2.0.bin`.
    ///
    /// # Errors
    ///
    /// * `Io` if the file cannot be read.
    /// * `Format` if the file is truncated, if a tensor is missing, duplicate or unknown, or if a weight
    ///   is not finite.
    /// * `Unsupported` if it is not a Silero model at 16 kHz, or if its sizes or types are others.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |e: io::Error| Error::new(ErrorKind::Io, &e).caused_by(e);
        let read = || {
            let mut bytes = Vec::new();
            let mut file = File::open(path).map_err(failed)?.take(MAX_BYTES);
            file.read_to_end(&mut bytes).map_err(failed)?;
            Self::from_bytes(&bytes)
        };
        read().context(path.display())
    }

    /// Loads a model file in memory. See [`open`](Self::open) for errors.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = parse(bytes)?;
        let tensors = file.tensors;
        let [layer0, layer1, layer2, layer3] = tensors.encoder;
        // The input of layer 2 has two columns and that of layer 3 one: their other taps read padding.
        let encoder = [
            Linear::from_conv(&layer0.0, layer0.1, 0..3),
            Linear::from_conv(&layer1.0, layer1.1, 0..3),
            Linear::from_conv(&layer2.0, layer2.1, 1..3),
            Linear::from_conv(&layer3.0, layer3.1, 1..2),
        ];
        let input = tensors.input_weights.chunks_exact(WIDE);
        let rows = input.zip(tensors.hidden_weights.chunks_exact(WIDE));
        let biases = tensors.input_biases.iter().zip(&tensors.hidden_biases);
        Ok(Self {
            version: file.version,
            basis: Linear {
                weights: tensors.basis,
                biases: vec![0.0; 2 * BINS],
            },
            encoder,
            gates: Linear {
                weights: rows.flat_map(|(a, b)| [a, b]).flatten().copied().collect(),
                biases: biases.map(|(a, b)| a + b).collect(),
            },
            output_weights: tensors.output_weights,
            output_bias: tensors.output_bias.iter().sum(),
        })
    }

    /// Returns the version of the model, such as `[6, 2, 0]`.
    pub fn version(&self) -> [usize; 3] {
        self.version
    }
}

/// A matrix of weights with a bias per row.
struct Linear {
    weights: Vec<f32>,
    biases: Vec<f32>,
}

impl Linear {
    /// Arranges the weights of a convolution of 3 taps, `[outputs, inputs, 3]`, as `[outputs, taps,
    /// inputs]`, so that a row matches consecutive columns of the input.
    fn from_conv(weights: &[f32], biases: Vec<f32>, taps: Range<usize>) -> Self {
        let rows = weights.as_chunks::<3>().0;
        let rows = rows.chunks_exact(rows.len() / biases.len());
        let row = |row: &[[f32; 3]]| -> Vec<f32> {
            let tap = |tap: usize| row.iter().map(move |weights| weights[tap]);
            taps.clone().flat_map(tap).collect()
        };
        Self {
            weights: rows.flat_map(row).collect(),
            biases,
        }
    }

    /// Multiplies `N` columns; `store` receives the index and the `N` outputs of each row.
    fn apply<const N: usize>(&self, columns: [&[f32]; N], mut store: impl FnMut(usize, [f32; N])) {
        let rows = self.weights.chunks_exact(columns[0].len());
        for (i, (row, bias)) in rows.zip(&self.biases).enumerate() {
            store(i, dot(row, columns).map(|sum| sum + bias));
        }
    }
}

/// Accumulators of a dot product, which the compiler turns into vector registers.
const LANES: usize = 8;

/// Returns the dot products of a row with `N` columns of the same length.
#[inline]
fn dot<const N: usize>(row: &[f32], columns: [&[f32]; N]) -> [f32; N] {
    let mut lanes = [[0.0; LANES]; N];
    let (weights, rest) = row.as_chunks::<LANES>();
    let chunks = columns.map(|column| &column.as_chunks::<LANES>().0[..weights.len()]);
    for (i, weights) in weights.iter().enumerate() {
        for (lanes, chunks) in lanes.iter_mut().zip(&chunks) {
            for ((lane, weight), x) in lanes.iter_mut().zip(weights).zip(&chunks[i]) {
                *lane += weight * x;
            }
        }
    }
    let first = row.len() - rest.len();
    let mut sums = lanes.map(|lanes| lanes.iter().sum());
    for (sum, column) in sums.iter_mut().zip(columns) {
        let products = rest.iter().zip(&column[first..]).map(|(w, x)| w * x);
        *sum += products.sum::<f32>();
    }
    sums
}

/// Computes the probability of speech for each window of a recording.
///
/// Memory is allocated by [`new`](Self::new) only, apart from the output.
pub struct VoiceDetector {
    model: Arc<VoiceModel>,
    buffers: Box<Buffers>,
    /// Samples in the window.
    len: usize,
}

/// State and working memory of a detector. All but `hidden_input` after [`WIDE`] and `cell` is computed
/// anew for each window.
struct Buffers {
    window: [f32; PADDED],
    /// Real parts, then imaginary parts.
    spectra: [[f32; SPECTRA]; 2 * BINS],
    /// Inputs of the encoder layers: a row per point in time. The first row and, for layer 0, the last
    /// row are padding and stay 0.
    magnitudes: [f32; (SPECTRA + 2) * BINS],
    layer1: [f32; (SPECTRA + 1) * WIDE],
    layer2: [f32; 2 * NARROW],
    layer3: [f32; NARROW],
    /// Output of the encoder, then the hidden state.
    hidden_input: [f32; 2 * WIDE],
    gates: [f32; GATES],
    cell: [f32; WIDE],
}

impl fmt::Debug for VoiceDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VoiceDetector with {:?}", self.model)
    }
}

impl VoiceDetector {
    /// Creates a detector at the start of a recording.
    pub fn new(model: Arc<VoiceModel>) -> Self {
        Self {
            model,
            buffers: Box::new(Buffers {
                window: [0.0; PADDED],
                spectra: [[0.0; SPECTRA]; 2 * BINS],
                magnitudes: [0.0; (SPECTRA + 2) * BINS],
                layer1: [0.0; (SPECTRA + 1) * WIDE],
                layer2: [0.0; 2 * NARROW],
                layer3: [0.0; NARROW],
                hidden_input: [0.0; 2 * WIDE],
                gates: [0.0; GATES],
                cell: [0.0; WIDE],
            }),
            len: 0,
        }
    }

    /// Appends one probability to `out` per complete window of [`VOICE_WINDOW`] samples at 16 kHz.
    ///
    /// The probabilities do not depend on the sizes of the pushes. Samples that are not finite count as 0.
    pub fn push(&mut self, mut samples: &[f32], out: &mut Vec<f32>) {
        while !samples.is_empty() {
            let free = &mut self.buffers.window[REFLECTED..][self.len..VOICE_WINDOW];
            let (taken, rest) = samples.split_at(free.len().min(samples.len()));
            for (to, x) in free.iter_mut().zip(taken) {
                *to = round_to_f16(if x.is_finite() { *x } else { 0.0 });
            }
            self.len += taken.len();
            samples = rest;
            if self.len == VOICE_WINDOW {
                out.push(self.buffers.probability(&self.model));
                self.len = 0;
            }
        }
    }

    /// Ends the recording: pads an incomplete window with zeros and appends its probability to `out`. The
    /// next push starts another recording.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        if self.len > 0 {
            self.buffers.window[REFLECTED..][self.len..VOICE_WINDOW].fill(0.0);
            out.push(self.buffers.probability(&self.model));
            self.len = 0;
        }
        self.buffers.hidden_input.fill(0.0);
        self.buffers.cell.fill(0.0);
    }
}

impl Buffers {
    /// Computes the probability for the window and updates the state.
    fn probability(&mut self, model: &VoiceModel) -> f32 {
        self.compute_magnitudes(&model.basis);
        self.encode(&model.encoder);
        self.advance(&model.gates);
        let hidden = &self.hidden_input[WIDE..];
        let products = model.output_weights.iter().zip(hidden);
        let sum: f32 = products.map(|(w, x)| w * round_to_f16(x.max(0.0))).sum();
        sigmoid(sum + model.output_bias)
    }

    /// Computes the spectra of the window.
    fn compute_magnitudes(&mut self, basis: &Linear) {
        // Reflection leaves out the sample at the end.
        for i in 1..=REFLECTED {
            let last = REFLECTED + VOICE_WINDOW - 1;
            self.window[REFLECTED - i] = self.window[REFLECTED + i];
            self.window[last + i] = self.window[last - i];
        }
        let columns: [_; SPECTRA] = std::array::from_fn(|t| &self.window[t * STRIDE..][..TAPS]);
        basis.apply(columns, |i, sums| self.spectra[i] = sums);
        let (real, imaginary) = self.spectra.split_at(BINS);
        for (bin, (real, imaginary)) in real.iter().zip(imaginary).enumerate() {
            for (t, (a, b)) in real.iter().zip(imaginary).enumerate() {
                self.magnitudes[(t + 1) * BINS + bin] = round_to_f16((a * a + b * b).sqrt());
            }
        }
    }

    /// Computes the encoder layers, with strides 1, 2, 2 and 1, each followed by `max(0, x)`.
    fn encode(&mut self, encoder: &[Linear; 4]) {
        let activate = |x: f32| round_to_f16(x.max(0.0));
        let columns: [_; SPECTRA] =
            std::array::from_fn(|t| &self.magnitudes[t * BINS..][..3 * BINS]);
        encoder[0].apply(columns, |i, sums| {
            for (t, sum) in sums.into_iter().enumerate() {
                self.layer1[(t + 1) * WIDE + i] = activate(sum);
            }
        });
        let columns = [0, 2].map(|t| &self.layer1[t * WIDE..][..3 * WIDE]);
        encoder[1].apply(columns, |i, sums| {
            for (t, sum) in sums.into_iter().enumerate() {
                self.layer2[t * NARROW + i] = activate(sum);
            }
        });
        encoder[2].apply([&self.layer2], |i, [sum]| self.layer3[i] = activate(sum));
        encoder[3].apply([&self.layer3], |i, [sum]| {
            self.hidden_input[i] = sum.max(0.0);
        });
    }

    /// Advances the LSTM by one window.
    fn advance(&mut self, gates: &Linear) {
        gates.apply([&self.hidden_input], |i, [sum]| self.gates[i] = sum);
        let (input, rest) = self.gates.split_at(WIDE);
        let (forget, rest) = rest.split_at(WIDE);
        let (candidate, output) = rest.split_at(WIDE);
        let hidden = &mut self.hidden_input[WIDE..];
        for (i, (cell, hidden)) in self.cell.iter_mut().zip(hidden).enumerate() {
            *cell = sigmoid(forget[i]) * *cell + sigmoid(input[i]) * candidate[i].tanh();
            *hidden = sigmoid(output[i]) * cell.tanh();
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Rounds to the nearest f16, ties to even. Numbers out of its range become its maximum, 65504.
/// Branch-free, so that the compiler vectorizes it.
fn round_to_f16(x: f32) -> f32 {
    let bits = x.abs().min(65504.0).to_bits();
    let normal = f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff);
    // Subnormals are multiples of 2^-24, as f32 from 0.5 to 1 are.
    let subnormal = (f32::from_bits(bits) + 0.5) - 0.5;
    let least = 1.0 / 16384.0;
    let magnitude = if normal < least { subnormal } else { normal };
    magnitude.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::round_to_f16;
    use tabla_core::scales::f16;

    #[test]
    fn rounding_to_f16_is_to_nearest_even() {
        for bits in 0..0x7bff_u16 {
            let [low, high] = [bits, bits + 1].map(|bits| f16(bits.to_le_bytes()));
            let middle = f32::midpoint(low, high);
            let even = if bits % 2 == 0 { low } else { high };
            for sign in [1.0, -1.0] {
                let expected = [
                    (low, low),
                    (middle.next_down(), low),
                    (middle, even),
                    (middle.next_up(), high),
                    (high, high),
                ];
                for (x, rounded) in expected {
                    let found = round_to_f16(sign * x);
                    assert_eq!(found.to_bits(), (sign * rounded).to_bits(), "{x:e}");
                }
            }
        }
        for x in [65504.0, 65519.0, 65520.0, 1e30, f32::MAX] {
            assert_eq!(round_to_f16(-x).to_bits(), (-65504_f32).to_bits(), "{x:e}");
        }
    }
}
