//! Audio for speech models: samples in, the spectrograms that models read out.

mod mel;

pub use mel::{HOP, LogMel, MelFilters, SAMPLE_RATE, normalize};
