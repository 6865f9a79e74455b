//! Audio for speech models: spectrograms of samples.

mod mel;

pub use mel::{HOP, LogMel, MelFilters, SAMPLE_RATE, normalize};
