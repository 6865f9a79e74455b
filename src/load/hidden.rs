//! What stands in the residual stream behind every layer: to find the layer that is wrong.

use super::device::Device;
use super::{Options, Source, inspect};
use crate::error::{Result, bail};
use crate::exec::Program;
use crate::exec::state::{Row, State};
use crate::model::TableId;
use crate::op::table::Place;
use std::sync::Arc;

/// The residual stream behind every layer of a model.
#[derive(Clone, Debug)]
pub struct HiddenStates {
    /// Numbers of a row.
    pub dim: usize,
    /// `[tokens, dim]` for each layer.
    pub layers: Vec<Vec<f32>>,
}

/// Runs texts through a model in one pass and reads the residual stream behind every layer.
/// An encoder takes several texts, whose rows stand one after the other; other models take one.
///
/// # Errors
///
/// As [`load`](super::load), `Argument` for texts that cannot be run like this.
pub fn hidden_states(
    source: &Source,
    options: &Options,
    texts: &[Vec<u32>],
) -> Result<HiddenStates> {
    let total: usize = texts.iter().map(Vec::len).sum();
    let Ok(tokens) = u32::try_from(total) else {
        bail!(Argument, "{total} tokens are too many for one pass");
    };
    if texts.iter().any(Vec::is_empty) || texts.is_empty() {
        bail!(Argument, "a text without tokens");
    }
    let options = Options {
        chunk_tokens: tokens,
        context: options.context.max(tokens),
        ..options.clone()
    };
    let device = Device::choose(&options)?.check_shaders()?;
    let build = inspect::prepare(source, &options, device.profile()?)?;
    let id = if build.arch.encoder {
        TableId::Embed
    } else {
        TableId::Batch
    };
    if id == TableId::Batch && texts.len() > 1 {
        bail!(Argument, "this model takes one text at a time");
    }
    let mut tables = build.greedy_and_batch()?;
    tables.retain(|table| table.name == id.name());
    let table = tables[0].clone();
    let vocab = build.config.vocab;
    if let Some(bad) = texts.iter().flatten().find(|token| **token >= vocab) {
        bail!(Argument, "token {bad} is outside the vocabulary of {vocab}");
    }
    let context = build.cache.context;
    let program = Program {
        tables: tables.into(),
        tensors: Arc::new(build.catalog),
    };
    let mut executor = device.link(program)?;
    let state = State {
        live: tokens,
        context,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    for text in texts {
        for (position, &token) in (0..).zip(text) {
            bytes.extend_from_slice(bytemuck::bytes_of(&Row { token, position }));
        }
    }
    executor.write(Place::State, 0, &bytes)?;
    let mut states = HiddenStates {
        dim: build.config.dim as usize,
        layers: Vec::new(),
    };
    let mut from = 0;
    for layer in &table.layers {
        executor.run(0, from..layer.cmd, 1)?;
        from = layer.cmd;
        let mut rows = vec![0.0; total * states.dim];
        let place = table.slot(layer.slot).place;
        executor.read(place, 0, bytemuck::cast_slice_mut(&mut rows))?;
        states.layers.push(rows);
    }
    Ok(states)
}
