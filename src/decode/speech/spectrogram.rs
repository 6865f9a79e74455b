//! The spectrogram of a recording whose samples arrive in pieces. Results do not depend on the pieces.

use super::gate::Gate;
use crate::audio::{HOP, LogMel, MelFilters, normalize};
use crate::error::{Result, bail};
use std::ops::Range;

/// Samples before the middle of a frame that the frame contains, as whole frames.
const FRAMES_BEFORE: usize = 2;
/// Samples after the middle of a frame that the frame contains.
const SAMPLES_AFTER: usize = 200;
/// Frames after the end of a recording that contain some of its samples.
const FRAMES_AFTER: usize = 2;
/// Log-power of silence.
const SILENCE: f32 = -10.0;
/// Largest magnitude of a sample, whose square is finite.
const SAMPLE_MAX: f32 = 1e10;
/// Samples that are processed at a time.
const BLOCK_SAMPLES: usize = 1 << 14;

/// Frames of which the level is measured: half a second. These blocks begin at multiples of it.
const LEVEL_FRAMES: usize = 50;
/// Shortest silence that is skipped, in blocks: 2 seconds.
const SILENCE_BLOCKS: usize = 4;

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
    /// Number of leading frames that are not needed any more.
    unneeded: usize,
    /// Index of the first of `frames`.
    first: usize,
    /// Number of frames computed so far.
    computed: usize,
    /// Largest log-power of the frames before the end of the last window, or of the whole recording if
    /// it was measured.
    max: f32,
    /// Number of frames of the recording, after its end.
    end: Option<usize>,
    /// Test for silence; `None`: nothing is skipped.
    gate: Option<Gate>,
    /// Whether frames are being skipped and the end of the silence has not arrived.
    skipping: bool,
}

impl Spectrogram {
    pub(super) fn new(filters: MelFilters, gate: Option<Gate>) -> Self {
        let mels = filters.mels();
        Self {
            log_mel: LogMel::new(filters),
            mels,
            samples: Vec::new(),
            origin: 0,
            frames: Vec::new(),
            squares: Vec::new(),
            unneeded: 0,
            first: 0,
            computed: 0,
            max: SILENCE,
            end: None,
            gate,
            skipping: false,
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

    /// Returns the largest log-power of the frames that were removed or part of a window.
    pub(super) fn max(&self) -> f32 {
        self.max
    }

    /// Adds samples.
    ///
    /// # Errors
    ///
    /// `Argument` for a sample that is not finite or above 1e10.
    pub(super) fn push(&mut self, samples: &[f32]) -> Result<()> {
        // NaN is not less than the maximum.
        let is_valid = |sample: &f32| sample.abs() <= SAMPLE_MAX;
        if let Some(at) = samples.iter().position(|sample| !is_valid(sample)) {
            bail!(
                Argument,
                "sample {} is {}, expected a finite number of at most {SAMPLE_MAX:e}",
                self.sample_count() + at,
                samples[at]
            );
        }
        for block in samples.chunks(BLOCK_SAMPLES) {
            if let Some(gate) = &mut self.gate {
                gate.push(block);
            }
            self.samples.extend_from_slice(block);
            let complete = self.sample_count().saturating_sub(SAMPLES_AFTER) / HOP;
            self.compute(complete);
        }
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
            if let Some(gate) = &mut self.gate {
                gate.finish();
            }
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
        let wanted = seek.saturating_sub(self.first);
        let count = wanted.clamp(self.unneeded, self.squares.len().max(self.unneeded));
        let removed = &self.frames[self.unneeded * self.mels..count * self.mels];
        self.max = removed.iter().fold(self.max, |max, x| max.max(*x));
        self.unneeded = count;
        // Moving the rest takes as long as removing, so that each frame is moved a few times at most.
        if 2 * count >= self.squares.len() {
            self.frames.drain(..count * self.mels);
            self.squares.drain(..count);
            self.first += count;
            self.unneeded = 0;
        }
    }

    /// Returns the normalized frames of a window of `count` frames from frame `seek` on, of which
    /// `audio` are of the recording and silence follows, `[count, mels]`.
    pub(super) fn window(&mut self, seek: usize, audio: usize, count: usize) -> Vec<f32> {
        // At the end of the recording, some frames after it contain its samples.
        let audio = if self.end.is_some_and(|end| seek + audio >= end) {
            audio + FRAMES_AFTER
        } else {
            audio
        };
        let first = seek.saturating_sub(self.first) * self.mels;
        let available = &self.frames[first.min(self.frames.len())..];
        let len = available.len().min(audio.min(count) * self.mels);
        let mut window = Vec::with_capacity(count * self.mels);
        window.extend_from_slice(&available[..len]);
        self.max = window.iter().fold(self.max, |max, x| max.max(*x));
        window.resize(count * self.mels, SILENCE);
        normalize(&mut window, self.max);
        window
    }

    /// Returns the first frame to transcribe from `seek` on: after at least 2 seconds of silence, half a
    /// second before its end, or the end of a recording that ends with it.
    pub(super) fn skip_silence(&mut self, seek: usize) -> usize {
        let begin = seek.next_multiple_of(LEVEL_FRAMES);
        let (known, blocks) = (self.known(), self.silent_blocks(begin, usize::MAX));
        let end = begin + blocks * LEVEL_FRAMES;
        if self.has_ended() && end + LEVEL_FRAMES > known && self.is_silent(end..known) {
            // Frames before the first block may have the end of a word.
            return match blocks > 0 || self.skipping {
                true => self.len(),
                false => seek,
            };
        }
        let ends = end + LEVEL_FRAMES <= known || self.has_ended();
        let least = if self.skipping { 1 } else { SILENCE_BLOCKS };
        if blocks < least {
            self.skipping &= !ends;
            return seek;
        }
        self.skipping = !ends;
        end - LEVEL_FRAMES
    }

    /// Returns the number of frames from `seek` to the first silence of at least 2 seconds after sound,
    /// and half a second of it, among the `count` next frames. `None` if there is no such silence.
    pub(super) fn until_silence(&self, seek: usize, count: usize) -> Option<usize> {
        let mut at = seek.next_multiple_of(LEVEL_FRAMES);
        let mut has_sound = false;
        while at + SILENCE_BLOCKS * LEVEL_FRAMES <= self.known().min(seek + count) {
            match self.silent_blocks(at, SILENCE_BLOCKS) {
                SILENCE_BLOCKS if has_sound => return Some(at + LEVEL_FRAMES - seek),
                0 => {
                    has_sound = true;
                    at += LEVEL_FRAMES;
                }
                blocks => at += blocks * LEVEL_FRAMES,
            }
        }
        None
    }

    /// Returns the number of frames whose silence is known.
    fn known(&self) -> usize {
        let len = self.len();
        self.gate.as_ref().map_or(len, |gate| gate.known(len))
    }

    /// Returns the number of consecutive silent blocks from frame `begin` on, at most `most`.
    fn silent_blocks(&self, begin: usize, most: usize) -> usize {
        let blocks = self.known().saturating_sub(begin) / LEVEL_FRAMES;
        let block = |at: usize| begin + at * LEVEL_FRAMES..begin + (at + 1) * LEVEL_FRAMES;
        let all = 0..blocks.min(most);
        all.take_while(|at| self.is_silent(block(*at))).count()
    }

    fn is_silent(&self, frames: Range<usize>) -> bool {
        let index = |frame: usize| frame.saturating_sub(self.first).min(self.squares.len());
        let squares = &self.squares[index(frames.start)..index(frames.end.max(frames.start))];
        let gate = self.gate.as_ref();
        gate.is_some_and(|gate| gate.is_silent(frames, squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spectrogram of parts: seconds of sound if positive, of silence if negative.
    fn of(parts: &[i32]) -> Spectrogram {
        let mut s = Spectrogram::new(MelFilters::slaney(8), Some(Gate::level(-60.0)));
        for part in parts {
            let samples = 16_000 * part.unsigned_abs() as usize;
            let sample = |i: usize| [0.1, 0.1, -0.1, -0.1][i % 4];
            let sound = (0..samples).map(|i| if *part > 0 { sample(i) } else { 0.0 });
            s.push(&sound.collect::<Vec<f32>>()).unwrap();
        }
        s
    }

    #[test]
    fn long_silence_is_skipped() {
        assert_eq!(of(&[-5, 3]).skip_silence(0), 450);
        assert_eq!(of(&[-1, 3]).skip_silence(0), 0);
        assert_eq!(of(&[3, -5, 3]).skip_silence(0), 0);
        assert_eq!(of(&[3, -5, 3]).skip_silence(310), 750);
        let mut ended = of(&[3, -5]);
        ended.finish();
        assert_eq!(ended.skip_silence(310), 800);
    }

    #[test]
    fn pieces_do_not_change_what_is_skipped() {
        let samples: Vec<f32> = [(8, 0.0), (3, 0.1), (7, 0.0), (2, 0.1)]
            .iter()
            .flat_map(|(seconds, x)| vec![*x; 16_000 * seconds])
            .collect();
        for piece in [160, 1600, 16_000, 123_457] {
            let mut s = Spectrogram::new(MelFilters::slaney(8), Some(Gate::level(-60.0)));
            let (mut seek, mut targets) = (0, Vec::new());
            for piece in samples.chunks(piece) {
                s.push(piece).unwrap();
                let next = s.skip_silence(seek);
                s.forget(next);
                seek = next;
                if !s.skipping && seek > 0 && targets.is_empty() {
                    targets.push(seek);
                }
            }
            assert_eq!(targets, [750], "{piece}");
            assert_eq!(s.until_silence(seek, 3000), Some(400), "{piece}");
        }
    }

    #[test]
    fn windows_are_padded_with_silence() {
        let mut s = of(&[1]);
        s.finish();
        let window = s.window(0, 100, 200);
        assert_eq!(window.len(), 200 * 8);
        let floor = (s.max() - 8.0 + 4.0) / 4.0;
        assert!(window[150 * 8..].iter().all(|x| *x == floor));
        assert!(window[50 * 8..51 * 8].iter().any(|x| *x > floor));
    }
}
