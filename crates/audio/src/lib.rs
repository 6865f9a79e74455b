//! Audio for speech models: decoding of audio files to mono samples at 16 kHz, detection of silence and
//! of speech, and spectrograms of samples.

mod convert;
mod file;
mod mel;
mod metadata;
mod mp4;
mod opus;
mod reader;
mod replay;
mod runs;
mod source;
mod speech;
mod track;
mod voice;
mod voice_file;
mod wav;

pub use convert::{MAX_CHANNELS, PcmConverter};
pub use mel::{HOP, LogMel, MelFilters, SAMPLE_RATE, normalize};
pub use reader::AudioReader;
pub use speech::{VoiceOptions, speech_ranges};
pub use voice::{VOICE_WINDOW, VoiceDetector, VoiceModel};
