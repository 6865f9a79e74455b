//! Options of adapters and control vectors.

use super::parsers::lora_adapter;
use crate::output::Failure;
use clap::Args;
use std::path::PathBuf;
use tabla::error::Context;
use tabla::tools::ControlVector;
use tabla::{HookSpec, Session};

/// Adapters and control vectors of a session.
#[derive(Args, Debug)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct HookArgs {
    /// LoRA adapter: a folder of peft or a GGUF file, with the factor of its change. Can be repeated
    /// [default scale: 1]
    #[arg(long, value_name = "ADAPTER[=SCALE]", value_parser = lora_adapter)]
    lora: Vec<(PathBuf, f32)>,
    /// Control vector: a GGUF or .npy file with a vector per layer, which is multiplied by the factor
    /// and added to the output of the layer. Can be repeated [default scale: 1]
    #[arg(long, value_name = "FILE[=SCALE]", value_parser = lora_adapter)]
    control_vector: Vec<(PathBuf, f32)>,
    /// First and last layer to which control vectors are added, counted from 0 [default: all]
    #[arg(long, value_names = ["FIRST", "LAST"], num_args = 2, requires = "control_vector")]
    control_vector_layer_range: Vec<u32>,
}

impl HookArgs {
    /// Applies the adapters and control vectors to a session.
    pub(crate) fn apply(&self, session: &mut Session) -> Result<(), Failure> {
        if self.lora.is_empty() && self.control_vector.is_empty() {
            return Ok(());
        }
        let model = session.model().clone();
        let range = match self.control_vector_layer_range[..] {
            [first, last] if first > last => {
                return Err(Failure::Usage(format!(
                    "--control-vector-layer-range: the first layer {first} is after the last {last}"
                )));
            }
            [first, last] => Some(first..last.saturating_add(1)),
            _ => None,
        };
        let mut edits = Vec::new();
        for (path, scale) in &self.control_vector {
            let vector = ControlVector::read(path)?;
            let added = vector.edits(model.facts(), range.clone(), *scale);
            edits.extend(added.context(path.display())?);
        }
        let mut adapters = Vec::with_capacity(self.lora.len());
        for (path, _) in &self.lora {
            adapters.push(model.read_adapter(path)?);
        }
        let hooks = model.hooks_with(&HookSpec::default().edits(edits), &adapters)?;
        session.set_hooks(Some(&hooks))?;
        let scales: Vec<f32> = self.lora.iter().map(|(_, scale)| *scale).collect();
        Ok(session.set_adapter_scales(&scales)?)
    }
}
