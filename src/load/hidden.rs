//! What stands in the residual stream behind every layer: to find the layer that is wrong.

use super::device::Device;
use super::inspect;
use super::options::LoadOptions;
use super::source::Source;
use crate::error::{Result, bail};
use crate::exec::Program;
use crate::exec::state::{Row, State};
use crate::model::TableId;
use crate::op::table::{BufferId, Table};

/// Greatest difference from a reference: absolute, or relative to the largest number of the layer
/// where that is over 1.
const TOLERANCE: f32 = 1e-4;

/// The residual stream behind every layer of a model.
#[derive(Clone, Debug)]
pub struct HiddenStates {
    /// Numbers of a row.
    pub dim: usize,
    /// `[tokens, dim]` for each layer.
    pub layers: Vec<Vec<f32>>,
    /// The table that made them.
    pub table: Table,
}

/// How far a layer is from a reference.
#[derive(Clone, Copy, Debug)]
pub struct LayerDifference {
    /// The greatest difference; infinite where one is NaN.
    pub worst: f32,
    /// Where it is, in `[tokens, dim]`.
    pub element: usize,
    /// The largest number of the reference's layer.
    pub largest: f32,
}

impl LayerDifference {
    /// Whether the layer is the reference's, but for the order of sums in f32.
    pub fn agrees(&self) -> bool {
        self.worst <= TOLERANCE * self.largest.max(1.0)
    }
}

impl HiddenStates {
    /// How far each layer is from a reference, `[layers, tokens, dim]`.
    ///
    /// # Errors
    ///
    /// `Argument` for a reference of another size.
    pub fn against(&self, reference: &[f32]) -> Result<Vec<LayerDifference>> {
        let own: usize = self.layers.iter().map(Vec::len).sum();
        if reference.len() != own {
            bail!(
                Argument,
                "the reference has {} numbers, not {own}: {} layers of {} rows of {}",
                reference.len(),
                self.layers.len(),
                own / self.layers.len().max(1) / self.dim,
                self.dim
            );
        }
        let mut rest = reference;
        let layers = self.layers.iter().map(|found| {
            let (wanted, after) = rest.split_at(found.len());
            rest = after;
            difference(found, wanted)
        });
        Ok(layers.collect())
    }
}

fn difference(found: &[f32], wanted: &[f32]) -> LayerDifference {
    let gap = |(a, b): (&f32, &f32)| {
        let gap = (a - b).abs();
        if gap.is_nan() { f32::INFINITY } else { gap }
    };
    let gaps = found.iter().zip(wanted).map(gap).enumerate();
    let (element, worst) = gaps.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    LayerDifference {
        worst,
        element,
        largest: wanted.iter().fold(0.0, |m, x| m.max(x.abs())),
    }
}

/// Runs texts through a model in one pass and reads the residual stream behind every layer.
/// An encoder takes several texts, whose rows stand one after the other; other models take one.
///
/// # Errors
///
/// As [`load`](crate::load()), `Argument` for texts that cannot be run like this.
pub fn hidden_states(
    source: &Source,
    options: &LoadOptions,
    texts: &[Vec<u32>],
) -> Result<HiddenStates> {
    let total: usize = texts.iter().map(Vec::len).sum();
    let Ok(tokens) = u32::try_from(total) else {
        bail!(Argument, "{total} tokens are too many for one pass");
    };
    if texts.iter().any(Vec::is_empty) || texts.is_empty() {
        bail!(Argument, "a text without tokens");
    }
    let options = LoadOptions {
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
    let mut tables = build.batches()?;
    tables.retain(|table| table.name == id.name());
    let table = tables[0].clone();
    let vocab = build.config.vocab;
    if let Some(bad) = texts.iter().flatten().find(|token| **token >= vocab) {
        bail!(Argument, "token {bad} is outside the vocabulary of {vocab}");
    }
    let context = build.cache.context;
    let program = Program {
        tables: tables.into(),
        tensors: build.catalog,
    };
    let mut executor = device.link(program, build.profile, &build.cache)?;
    let state = State {
        live: tokens,
        context,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    for text in texts {
        for (position, &token) in (0..).zip(text) {
            bytes.extend_from_slice(bytemuck::bytes_of(&Row {
                token,
                position,
                ..Row::default()
            }));
        }
    }
    executor.write(BufferId::State, 0, &bytes)?;
    let mut states = HiddenStates {
        dim: build.config.dim as usize,
        layers: Vec::new(),
        table,
    };
    let mut from = 0;
    for layer in &states.table.layers {
        executor.run(0, (from..layer.cmd).into(), 1)?;
        from = layer.cmd;
        let mut rows = vec![0.0; total * states.dim];
        let place = states.table.slot(layer.slot).place;
        executor.read(place, 0, bytemuck::cast_slice_mut(&mut rows))?;
        states.layers.push(rows);
    }
    Ok(states)
}
