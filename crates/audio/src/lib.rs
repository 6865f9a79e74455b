//! Audio for speech models: decoding of audio files to mono samples at 16 kHz, detection of silence,
//! and spectrograms of samples.

mod convert;
mod energy;
mod mel;
mod mp4;
mod opus;
mod reader;
mod source;
mod track;

pub use convert::{MAX_CHANNELS, PcmConverter};
pub use energy::{DEFAULT_THRESHOLD, loud_ranges};
pub use mel::{HOP, LogMel, MelFilters, SAMPLE_RATE, normalize};
pub use reader::AudioReader;
