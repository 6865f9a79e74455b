//! Hidden states after every layer, to find the first layer that is wrong.

use crate::error::{Result, bail};
use crate::exec::Program;
use crate::load::build::Build;
use crate::load::options::LoadOptions;
use crate::load::selected_device::SelectedDevice;
use crate::load::source::Source;
use crate::model::TableId;
use crate::op::params::{Row, State};
use crate::op::table::{BufferId, Table};

/// Maximum difference from a reference: absolute, or relative to the largest value of the layer if
/// that is over 1.
const TOLERANCE: f32 = 1e-4;

/// Hidden states (residual stream) after every layer of a model.
#[derive(Clone, Debug)]
pub struct HiddenStates {
    /// Width of a row.
    pub dim: usize,
    /// Values of each layer, `[tokens, dim]`.
    pub layers: Vec<Vec<f32>>,
    /// The table that computed them.
    pub table: Table,
}

/// Difference of a layer from a reference.
#[derive(Clone, Copy, Debug)]
pub struct LayerDifference {
    /// The largest difference; infinite if a value is NaN.
    pub worst: f32,
    /// Index of the largest difference, in `[tokens, dim]`.
    pub element: usize,
    /// The largest absolute value of the reference layer.
    pub largest: f32,
}

impl LayerDifference {
    /// Returns whether the layer matches the reference, except for the order of sums in f32.
    pub fn agrees(&self) -> bool {
        self.worst <= TOLERANCE * self.largest.max(1.0)
    }
}

impl HiddenStates {
    /// Compares each layer with a reference, `[layers, tokens, dim]`.
    ///
    /// # Errors
    ///
    /// `Argument` for a reference of the wrong size.
    pub fn against(&self, reference: &[f32]) -> Result<Vec<LayerDifference>> {
        let own: usize = self.layers.iter().map(Vec::len).sum();
        if reference.len() != own {
            bail!(
                Argument,
                "the reference has {} values, expected {own}: {} layers of {} rows of {}",
                reference.len(),
                self.layers.len(),
                own / self.layers.len().max(1) / self.dim,
                self.dim
            );
        }
        let mut rest = reference;
        let layers = self.layers.iter().map(|actual| {
            let (expected, after) = rest.split_at(actual.len());
            rest = after;
            difference(actual, expected)
        });
        Ok(layers.collect())
    }
}

fn difference(actual: &[f32], expected: &[f32]) -> LayerDifference {
    let gap = |(a, b): (&f32, &f32)| {
        let gap = (a - b).abs();
        if gap.is_nan() { f32::INFINITY } else { gap }
    };
    let gaps = actual.iter().zip(expected).map(gap).enumerate();
    let (element, worst) = gaps.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    LayerDifference {
        worst,
        element,
        largest: expected.iter().fold(0.0, |m, x| m.max(x.abs())),
    }
}

/// Runs texts through a model in one forward pass and returns the hidden states after every layer.
/// An encoder accepts several texts, whose rows are concatenated; a decoder accepts one.
///
/// # Errors
///
/// As `ModelBuilder::load`; `Argument` for an empty text, several texts for a decoder, or a token
/// outside the vocabulary.
pub fn hidden_states(
    source: &Source,
    options: &LoadOptions,
    texts: &[Vec<u32>],
) -> Result<HiddenStates> {
    let total: usize = texts.iter().map(Vec::len).sum();
    let Ok(tokens) = u32::try_from(total) else {
        bail!(Argument, "{total} tokens are too many for one forward pass");
    };
    if texts.iter().any(Vec::is_empty) || texts.is_empty() {
        bail!(Argument, "a text without tokens");
    }
    let context = options.max_context.max(tokens);
    let options = options.clone().chunk_tokens(tokens).max_context(context);
    let device = SelectedDevice::choose(&options)?.check_shaders()?;
    let build = Build::prepare(source, &options, device.profile()?)?;
    let id = if build.arch.encoder {
        build.rows_id()
    } else {
        TableId::Batch
    };
    if id == TableId::Batch && texts.len() > 1 {
        bail!(Argument, "expected one text, got {}", texts.len());
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
        active_rows: tokens,
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
        let buffer = states.table.slot(layer.slot).buffer;
        executor.read(buffer, 0, bytemuck::cast_slice_mut(&mut rows))?;
        states.layers.push(rows);
    }
    Ok(states)
}
