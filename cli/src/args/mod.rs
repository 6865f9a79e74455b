//! Options that several commands share.

mod device;
mod escapes;
mod hooks;
mod hub;
pub(crate) mod llama_cpp;
#[rustfmt::skip] // generated
mod load_options;
mod model;
pub(crate) mod parsers;
pub(crate) mod prompt;
mod sampling;
#[rustfmt::skip] // generated
mod sampling_options;
mod structure;
pub(crate) mod text_file;
mod texts;

pub(crate) use device::ContextArg;
pub(crate) use hooks::HookArgs;
pub(crate) use load_options::LoadOptionArgs as DeviceArgs;
pub(crate) use model::{FileArg, ModelArg, NameArg, source_name};
pub(crate) use prompt::PromptArgs;
pub(crate) use sampling::{OverflowArgs, SamplingArgs, token_limit};
pub(crate) use structure::{SpeculationArgs, StructureArgs};
pub(crate) use texts::TextsArgs;
