//! Options that several commands share.

mod device;
mod hooks;
mod hub;
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
#[cfg(test)]
pub(crate) use hub::SHORT_OPTIONS;
pub(crate) use hub::expand_short_options;
pub(crate) use load_options::LoadOptionArgs as DeviceArgs;
pub(crate) use model::{FileArg, ModelArg, NameArg, source_name};
pub(crate) use prompt::PromptArgs;
pub(crate) use sampling::{OverflowArgs, SamplingArgs};
pub(crate) use structure::{SpeculationArgs, StructureArgs};
pub(crate) use texts::TextsArgs;
