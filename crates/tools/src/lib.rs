//! Tools for model files and devices: inspection, quantization, conversion, tuning and comparison;
//! control vectors.

mod compare;
mod control_vector;
mod hidden;
mod inspect;
#[cfg(test)]
mod parity;
mod quantize;
mod tune;

pub use compare::{Comparison, Difference, compare};
pub use control_vector::ControlVector;
pub use hidden::{HiddenStates, LayerDifference, hidden_states};
pub use inspect::{
    MemoryEstimate, compile, estimate, load_chat_templates, load_tokenizer, open_directory,
};
pub use quantize::{
    ConversionReport, ExportOptions, QUANT_MIXES, QuantMix, QuantizeOptions, TensorReport, export,
    quantize,
};
pub use tabla_load::compiled::{
    CachedModel, CompileReport, Header as CompiledHeader, SectionSize, cached_models,
    check_digests, compile_model, section_sizes, target as compiled_target,
};
pub use tabla_load::finite::{NotFinite, check_weights};
pub use tabla_load::tuning::Tuning;
pub use tune::{CommandGroup, Speedup, TuneReport, tune};

use tabla_audio as audio;
use tabla_core::{device, dtype, error, op};
use tabla_format as format;
use tabla_load as load;
use tabla_load::{arch, exec, model, output};
use tabla_quant as quant;
use tabla_speech as speech;
use tabla_text as text;
