//! The spectrogram of a recording whose samples arrive in pieces.

use crate::audio::{HOP, LogMel, MelFilters, normalize};
use crate::error::{Result, bail};

/// Samples before the middle of a frame that the frame contains, as whole frames.
const FRAMES_BEFORE: usize = 2;
/// Samples after the middle of a frame that the frame contains.
const SAMPLES_AFTER: usize = 200;
/// Frames after the end of a recording that contain some of its samples.
const FRAMES_AFTER: usize = 2;
/// Log-power of silence.
const SILENCE: f32 = -10.0;

/// Frames of which the level is measured: half a second.
const LEVEL_FRAMES: usize = 50;
/// Shortest silence that is skipped, in frames: 2 seconds.
const SILENCE_FRAMES: usize = 200;

/// Log-mel frames that are still needed, and the samples of the next one.
#[derive(Debug)]
pub(super) struct Spectrogram {
    log_mel: LogMel,
    mels: usize,
    /// Samples from sample `FRAMES_BEFORE` frames before the next frame on.
    samples: Vec<f32>,
    /// Index of the first of `samples`, a multiple of [`HOP`].
    origin: usize,
    /// Log-powers of frames, `[frames, mels]`.
    frames: Vec<f32>,
    /// Mean square of the samples of each of the frames.
    squares: Vec<f32>,
    /// Index of the first of `frames`.
    first: usize,
    /// Number of frames computed so far.
    computed: usize,
    /// Largest log-power so far.
    max: f32,
    /// Number of frames of the recording, after its end.
    end: Option<usize>,
}

impl Spectrogram {
    pub(super) fn new(filters: MelFilters) -> Self {
        let mels = filters.mels();
        Self {
            log_mel: LogMel::new(filters),
            mels,
            samples: Vec::new(),
            origin: 0,
            frames: Vec::new(),
            squares: Vec::new(),
            first: 0,
            computed: 0,
            max: SILENCE,
            end: None,
        }
    }

    /// Returns the number of frames with audio so far.
    pub(super) fn len(&self) -> usize {
        self.end.unwrap_or(self.computed)
    }

    /// Returns whether the recording has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the number of samples so far.
    pub(super) fn sample_count(&self) -> usize {
        self.origin + self.samples.len()
    }

    /// Raises the maximum that frames are normalized with.
    pub(super) fn raise_max(&mut self, max: f32) {
        self.max = self.max.max(max);
    }

    /// Returns the largest log-power so far.
    pub(super) fn max(&self) -> f32 {
        self.max
    }

    /// Adds samples.
    ///
    /// # Errors
    ///
    /// `Argument` for a sample that is not finite.
    pub(super) fn push(&mut self, samples: &[f32]) -> Result<()> {
        if let Some(at) = samples.iter().position(|sample| !sample.is_finite()) {
            bail!(
                Argument,
                "sample {} is {}, expected a finite number",
                self.sample_count() + at,
                samples[at]
            );
        }
        self.samples.extend_from_slice(samples);
        let complete = self.sample_count().saturating_sub(SAMPLES_AFTER) / HOP;
        self.compute(complete);
        Ok(())
    }

    /// Ends the recording: silence follows.
    pub(super) fn finish(&mut self) {
        if self.end.is_none() {
            let end = self.sample_count() / HOP;
            if end > 0 {
                self.compute(end + FRAMES_AFTER);
            }
            self.end = Some(end);
        }
    }

    /// Computes the frames before frame `end`.
    fn compute(&mut self, end: usize) {
        if end <= self.computed {
            return;
        }
        let start = self.frames.len();
        let count = end - self.computed;
        self.frames.resize(start + count * self.mels, 0.0);
        let skipped = self.origin / HOP;
        let range = self.computed - skipped..end - skipped;
        // Silence follows, farther than any frame reaches.
        let len = self.samples.len().max(range.end * HOP) + 4 * HOP;
        let out = &mut self.frames[start..];
        self.log_mel
            .log_powers(&self.samples, len, range.clone(), out);
        self.max = out.iter().fold(self.max, |max, x| max.max(*x));
        self.squares.extend(range.map(|frame| {
            let end = self.samples.len().min((frame + 1) * HOP);
            let samples = &self.samples[end.min(frame * HOP)..end];
            samples.iter().map(|x| x * x).sum::<f32>() / HOP as f32
        }));
        self.computed = end;
        let origin = end.saturating_sub(FRAMES_BEFORE) * HOP;
        let unneeded = origin.saturating_sub(self.origin).min(self.samples.len());
        let unneeded = unneeded / HOP * HOP;
        self.samples.drain(..unneeded);
        self.origin += unneeded;
    }

    /// Removes the frames before frame `seek`.
    pub(super) fn forget(&mut self, seek: usize) {
        let count = seek.saturating_sub(self.first).min(self.squares.len());
        self.frames.drain(..count * self.mels);
        self.squares.drain(..count);
        self.first += count;
    }

    /// Returns the normalized frames of a window of `count` frames from frame `seek` on, `[count,
    /// mels]`.
    pub(super) fn window(&self, seek: usize, count: usize) -> Vec<f32> {
        let first = (seek - self.first) * self.mels;
        let available = &self.frames[first.min(self.frames.len())..];
        let mut window = available[..available.len().min(count * self.mels)].to_vec();
        window.resize(count * self.mels, SILENCE);
        normalize(&mut window, self.max);
        window
    }

    /// Returns the first frame from `seek` on after at least 2 seconds below `level`, in dBFS, and
    /// half a second before the end of this silence; `seek` if there is no such silence.
    pub(super) fn skip_silence(&self, seek: usize, level: f32) -> usize {
        let power = 10f32.powf(level / 10.0);
        let from = (seek - self.first).min(self.squares.len());
        let end = (self.len() - self.first).min(self.squares.len());
        let squares = &self.squares[from..end.max(from)];
        let is_silent = |block: &&[f32]| block.iter().sum::<f32>() <= power * block.len() as f32;
        let silent = squares.chunks(LEVEL_FRAMES).take_while(is_silent);
        let frames: usize = silent.map(<[f32]>::len).sum();
        if frames == squares.len() && self.has_ended() {
            return self.len();
        }
        if frames < SILENCE_FRAMES {
            return seek;
        }
        seek + frames - LEVEL_FRAMES
    }
}
