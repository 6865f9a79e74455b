//! Options of the device that runs a model, and of its KV cache.

use super::load_options::LoadOptionArgs;
use crate::output::{Failure, cache_folders};
use clap::Args;
use tabla::load::{CONTEXT_TRAINED, CpuExperts, LoadOptions};

/// Size of the context.
#[derive(Args, Debug)]
pub(crate) struct ContextArg {
    /// Size of the context in tokens; 0: the model's training context [default: the training context,
    /// at most 4096]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<u32>,
}

impl LoadOptionArgs {
    /// Returns the load options for a context of this many tokens; 0: the default.
    pub(crate) fn options(&self, context: u32) -> Result<LoadOptions, Failure> {
        if let Some(folder) = self.shaders.as_deref().filter(|folder| !folder.is_dir()) {
            let shown = folder.display();
            return Err(Failure::new(format!("--shaders {shown}: not a folder")));
        }
        // Tunings apply to the embedded shaders only.
        let tuned = !self.no_tuning && self.shaders.is_none();
        Ok(self
            .clone()
            .plain_options()
            .max_context(context)
            .cpu_experts(match (self.cpu_moe, self.n_cpu_moe) {
                (true, _) => CpuExperts::All,
                (false, Some(layers)) => CpuExperts::First(layers),
                (false, None) => CpuExperts::Off,
            })
            .pipeline_cache_path(cache_folders::kernels())
            .compiled_cache_path(self.cache.then(cache_folders::compiled).flatten())
            .tuning_path(tuned.then(cache_folders::tunings).flatten()))
    }
}

impl ContextArg {
    /// Returns the number of tokens; 0: the default.
    pub(crate) fn tokens(&self) -> u32 {
        match self.ctx_size {
            None => 0,
            Some(0) => CONTEXT_TRAINED,
            Some(tokens) => tokens,
        }
    }
}
