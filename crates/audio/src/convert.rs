//! Conversion of PCM of any rate and number of channels to mono samples at 16 kHz.

use crate::mel::SAMPLE_RATE;
use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::calculate_cutoff;
use rubato::{
    Async, Fft, FixedAsync, FixedSync, ResamplerConstructionError, SincInterpolationParameters,
    WindowFunction,
};
use std::fmt;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum number of channels.
pub const MAX_CHANNELS: usize = 32;
/// Minimum and maximum number of samples per second.
const RATES: std::ops::RangeInclusive<u32> = 1000..=768_000;
/// Minimum number of frames of a block of the resampler. The longer a block, the steeper the filter.
const MIN_BLOCK: usize = 2048;
/// Maximum number of frames of the shortest time with whole numbers of frames at both rates. Those of common rates are at
/// most 5507. Longer ones need transforms of millions of frames, in 100 MB.
const MAX_UNIT: usize = 8192;
/// Taps of the filter for other rates, per sample of output.
const TAPS: usize = 256;
/// Positions of this filter between two frames of input.
const POSITIONS: usize = 256;
/// Maximum absolute value of a sample. Larger ones overflow in the resampler.
const MAX_AMPLITUDE: f32 = 1e10;

/// Converts interleaved PCM to mono samples at 16 kHz, in pieces of any size.
///
/// Channels are mixed to their mean. Mono input at 16 kHz is copied without any change. The output is
/// aligned in time with the input: the delay of the resampler is removed, and `n` frames of input
/// result in `n * 16000 / sample_rate` samples, rounded. Frequencies above 8 kHz are removed.
pub struct PcmConverter {
    channels: usize,
    /// Frames so far.
    frames: u64,
    /// `None` if the input has 16 kHz.
    resampler: Option<Resampler>,
    /// Mixed frames of one `push`.
    mixed: Vec<f32>,
}

impl fmt::Debug for PcmConverter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PcmConverter of {} channels", self.channels)
    }
}

impl PcmConverter {
    /// Creates a converter for PCM of `sample_rate` frames per second.
    ///
    /// # Errors
    ///
    /// `Argument` if the rate is not 1000 to 768000 Hz, or if there are not 1 to [`MAX_CHANNELS`]
    /// channels.
    pub fn new(sample_rate: u32, channels: usize) -> Result<Self> {
        if !RATES.contains(&sample_rate) {
            bail!(
                Argument,
                "sample rate of {sample_rate} Hz, expected {} to {}",
                RATES.start(),
                RATES.end()
            );
        }
        if !(1..=MAX_CHANNELS).contains(&channels) {
            bail!(
                Argument,
                "{channels} channels, expected 1 to {MAX_CHANNELS}"
            );
        }
        let resampler = match sample_rate {
            SAMPLE_RATE => None,
            _ => Some(Resampler::new(sample_rate)?),
        };
        Ok(Self {
            channels,
            frames: 0,
            resampler,
            mixed: Vec::new(),
        })
    }

    /// Converts frames whose samples range from -1 to 1 and appends the result to `out`, of which the
    /// resampler retains a part until more frames follow.
    ///
    /// # Errors
    ///
    /// * `Argument` if the last frame is incomplete.
    /// * `Format` if a sample is infinite, NaN or above 1e10.
    pub fn push(&mut self, interleaved: &[f32], out: &mut Vec<f32>) -> Result<()> {
        self.push_mapped(interleaved, |x| x, out)
    }

    /// Converts frames of 16-bit samples. See [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// `Argument` if the last frame is incomplete.
    pub fn push_i16(&mut self, interleaved: &[i16], out: &mut Vec<f32>) -> Result<()> {
        self.push_mapped(interleaved, |x| f32::from(x) / 32768.0, out)
    }

    /// Appends what the resampler retains.
    ///
    /// # Errors
    ///
    /// `Internal` if the resampler fails.
    pub fn finish(self, out: &mut Vec<f32>) -> Result<()> {
        match self.resampler {
            Some(resampler) => resampler.finish(self.frames, out),
            None => Ok(()),
        }
    }

    fn push_mapped<T: Copy>(
        &mut self,
        interleaved: &[T],
        sample: impl Fn(T) -> f32,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        if !interleaved.len().is_multiple_of(self.channels) {
            bail!(
                Argument,
                "{} samples, expected a multiple of {} channels",
                interleaved.len(),
                self.channels
            );
        }
        let mixed = match self.resampler {
            Some(_) => &mut self.mixed,
            None => &mut *out,
        };
        mixed.reserve(interleaved.len() / self.channels);
        for frame in interleaved.chunks_exact(self.channels) {
            let sum: f32 = frame.iter().map(|x| sample(*x)).sum();
            // Exact for one channel.
            let mean = sum / self.channels as f32;
            // NaN is not within the range either.
            if !(-MAX_AMPLITUDE..=MAX_AMPLITUDE).contains(&mean) {
                bail!(
                    Format,
                    "sample {} is {mean}, expected a finite number",
                    self.frames
                );
            }
            mixed.push(mean);
            self.frames += 1;
        }
        if let Some(resampler) = &mut self.resampler {
            resampler.push(&self.mixed, out)?;
            self.mixed.clear();
        }
        Ok(())
    }
}

type Filter = Box<dyn rubato::Resampler<f32>>;

/// A filter for rates with a common unit of time.
fn by_transforms(rate: u32, unit: usize) -> Result<Filter, ResamplerConstructionError> {
    // Half of an even number of units is a whole number of samples at both rates: the delay.
    let block = unit * MIN_BLOCK.div_ceil(unit).next_multiple_of(2);
    let (from, to) = (rate as usize, SAMPLE_RATE as usize);
    Ok(Box::new(Fft::new(from, to, block, 1, FixedSync::Both)?))
}

/// A filter for all other rates.
fn by_taps(rate: u32) -> Result<Filter, ResamplerConstructionError> {
    let parameters = SincInterpolationParameters::new(taps(rate), WindowFunction::BlackmanHarris2)
        .oversampling_factor(POSITIONS)
        // That of the taps per sample of output: the default is that of all taps.
        .f_cutoff(calculate_cutoff(TAPS, WindowFunction::BlackmanHarris2));
    let ratio = f64::from(SAMPLE_RATE) / f64::from(rate);
    let filter = Async::new_sinc(ratio, 1.0, &parameters, MIN_BLOCK, 1, FixedAsync::Input)?;
    Ok(Box::new(filter))
}

fn taps(rate: u32) -> usize {
    // Rubato rounds to a multiple of 8, too.
    (TAPS * rate.max(SAMPLE_RATE) as usize / SAMPLE_RATE as usize).next_multiple_of(8)
}

/// Resamples to 16 kHz, in blocks.
struct Resampler {
    filter: Filter,
    rate: u32,
    /// Frames that are not a whole block yet.
    input: Vec<f32>,
    output: Vec<f32>,
    /// Samples of delay that are still to be removed.
    delay: usize,
    /// Samples so far.
    written: u64,
}

impl Resampler {
    fn new(rate: u32) -> Result<Self> {
        let common = gcd(rate, SAMPLE_RATE);
        let (unit, samples) = ((rate / common) as usize, (SAMPLE_RATE / common) as usize);
        let made = match unit {
            ..=MAX_UNIT => by_transforms(rate, unit),
            _ => by_taps(rate),
        };
        let filter = made.map_err(|e| {
            let message = format_args!("resampler from {rate} Hz");
            Error::new(ErrorKind::Internal, message).caused_by(e)
        })?;
        let mut resampler = Self {
            input: Vec::with_capacity(filter.input_frames_max()),
            output: vec![0.0; filter.output_frames_max()],
            delay: filter.output_delay(),
            written: 0,
            filter,
            rate,
        };
        if unit > MAX_UNIT {
            // The delay of taps is a fraction of a sample. Silence before the input makes it a whole number of samples.
            resampler.delay = samples - 1;
            resampler.push(&vec![0.0; unit - taps(rate) / 2], &mut Vec::new())?;
        }
        Ok(resampler)
    }

    fn push(&mut self, mut samples: &[f32], out: &mut Vec<f32>) -> Result<()> {
        while !samples.is_empty() {
            let block = self.filter.input_frames_next();
            let missing = block.saturating_sub(self.input.len());
            let (now, later) = samples.split_at(missing.min(samples.len()));
            self.input.extend_from_slice(now);
            samples = later;
            if self.input.len() == block {
                self.process(out)?;
            }
        }
        Ok(())
    }

    /// Resamples a whole block.
    fn process(&mut self, out: &mut Vec<f32>) -> Result<()> {
        let size = |e| Error::new(ErrorKind::Internal, "block of the resampler").caused_by(e);
        let (taken, given) = (self.input.len(), self.output.len());
        let input = SequentialSlice::new(&self.input, 1, taken).map_err(size)?;
        let mut output = SequentialSlice::new_mut(&mut self.output, 1, given).map_err(size)?;
        let done = self.filter.process_into_buffer(&input, &mut output, None);
        let (_, given) =
            done.map_err(|e| Error::new(ErrorKind::Internal, "resampler failed").caused_by(e))?;
        self.input.clear();
        let delayed = self.delay.min(given);
        self.delay -= delayed;
        let samples = self.output.get(delayed..given).unwrap_or_default();
        out.extend_from_slice(samples);
        self.written += samples.len() as u64;
        Ok(())
    }

    /// Appends the rest of the samples that `frames` frames of input result in.
    fn finish(mut self, frames: u64, out: &mut Vec<f32>) -> Result<()> {
        let rate = u64::from(self.rate);
        let expected = frames
            .saturating_mul(u64::from(SAMPLE_RATE))
            .saturating_add(rate / 2)
            / rate;
        while self.written < expected {
            self.input.resize(self.filter.input_frames_next(), 0.0);
            self.process(out)?;
        }
        let excess = usize::try_from(self.written - expected).unwrap_or(usize::MAX);
        out.truncate(out.len().saturating_sub(excess));
        Ok(())
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
