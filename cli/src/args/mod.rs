//! LoadOptions that several commands share.

mod answer;
mod device;
mod hub;
mod model;
pub(crate) mod parsers;
pub(crate) mod prompt;
mod sampling;
mod texts;

pub(crate) use answer::{SpeculationArgs, StructureArgs};
pub(crate) use device::{ContextArg, DeviceArgs};
pub(crate) use hub::{OfflineArg, spelt_out};
pub(crate) use model::{FileArg, ModelArg, source_name};
pub(crate) use prompt::PromptArgs;
pub(crate) use sampling::{OverflowArgs, SamplingArgs};
pub(crate) use texts::TextsArgs;
