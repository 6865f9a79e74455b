//! Linked hooks of a model: tables that store or change values of the forward pass, and adapters.

use super::captured::Captured;
use super::table_set::TableSet;
use crate::error::{Result, bail};
use crate::model::AdapterWeights;
use crate::op::hooks::{CaptureLayout, CapturePositions, CapturedPoint};
use crate::op::table::Table;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of remembered scales, whose sessions share the prefix cache.
const SCALES_MAX: usize = 256;

/// Linked hooks of a model, returned by [`Model::hooks`](crate::Model::hooks). Clones are cheap handles;
/// the last one frees the memory of the hooks on the device.
#[derive(Clone, Debug)]
pub struct Hooks(Arc<LinkedHooks>);

/// A LoRA adapter of a model, returned by [`Model::read_adapter`](crate::Model::read_adapter). Clones are
/// cheap handles.
#[derive(Clone)]
pub struct Adapter {
    weights: Arc<AdapterWeights>,
    /// Tables of the model, which identify it.
    model: Arc<[Table]>,
}

impl Adapter {
    pub(super) fn new(weights: AdapterWeights, model: Arc<[Table]>) -> Self {
        let weights = Arc::new(weights);
        Self { weights, model }
    }

    /// Returns the name of the folder, or of the file without its extension.
    pub fn name(&self) -> &str {
        &self.weights.name
    }

    /// Returns the names of the changed weights in GGUF files, without `.weight`, and the rank of each
    /// change.
    pub fn modules(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        let modules = self.weights.modules.iter();
        modules.map(|module| (module.tensor.as_str(), module.rank))
    }

    pub(super) fn weights(&self) -> Arc<AdapterWeights> {
        Arc::clone(&self.weights)
    }

    /// Returns whether the adapter was read for the model with these tables.
    pub(super) fn belongs_to(&self, model: &Arc<[Table]>) -> bool {
        Arc::ptr_eq(&self.model, model)
    }
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter")
            .field("name", &self.weights.name)
            .finish_non_exhaustive()
    }
}

/// Scales of the adapters of a session.
#[derive(Clone, Debug)]
pub(super) struct AdapterScales {
    pub(super) scales: Arc<[f32]>,
    /// Number that is unique among hooks and scales of a model, under which the prefix cache stores pages.
    pub(super) prefix_id: u32,
}

/// Data that handles of hooks share.
pub(super) struct LinkedHooks {
    /// Number of the hooks, which is unique among those of a model and not 0.
    pub(super) id: u32,
    pub(super) layout: CaptureLayout,
    pub(super) positions: CapturePositions,
    /// Number of adapters.
    pub(super) adapters: usize,
    /// Next number of hooks and scales.
    pub(super) ids: Arc<AtomicU32>,
    /// Scales that sessions have used.
    pub(super) scaled: Mutex<Vec<AdapterScales>>,
    pub(super) tables: Arc<TableSet>,
    /// Tables of the model, which identify it.
    pub(super) model: Arc<[Table]>,
    /// Frees the tables on the device.
    pub(super) unlink: Box<dyn Fn(&TableSet) + Send + Sync>,
}

impl Hooks {
    pub(super) fn new(linked: LinkedHooks) -> Self {
        Self(Arc::new(linked))
    }

    /// Returns the captured points with their columns, in the order of the forward pass.
    pub fn points(&self) -> &[CapturedPoint] {
        &self.0.layout.points
    }

    /// Returns the number of the hooks, which is unique among those of a model and not 0.
    pub(super) fn id(&self) -> u32 {
        self.0.id
    }

    pub(super) fn tables(&self) -> &Arc<TableSet> {
        &self.0.tables
    }

    /// Returns scales of the adapters.
    ///
    /// # Errors
    ///
    /// `Argument` if their number is wrong or one is not finite.
    pub(super) fn scales(&self, scales: &[f32]) -> Result<AdapterScales> {
        let adapters = self.0.adapters;
        if scales.len() != adapters {
            bail!(
                Argument,
                "expected a scale for each of {adapters} adapters, got {}",
                scales.len()
            );
        }
        if let Some(bad) = scales.iter().find(|scale| !scale.is_finite()) {
            bail!(Argument, "expected finite scales, got {bad}");
        }
        let same = |known: &&AdapterScales| {
            let mut pairs = known.scales.iter().zip(scales);
            pairs.all(|(a, b)| a.to_bits() == b.to_bits())
        };
        let mut scaled = self.0.scaled.lock();
        if let Some(known) = scaled.iter().find(same) {
            return Ok(known.clone());
        }
        let new = AdapterScales {
            scales: scales.into(),
            prefix_id: self.0.ids.fetch_add(1, Ordering::Relaxed),
        };
        // A forgotten entry only gets another number.
        if scaled.len() == SCALES_MAX {
            scaled.remove(0);
        }
        scaled.push(new.clone());
        Ok(new)
    }

    /// Returns the scales of a new session: 1 for each adapter.
    pub(super) fn default_scales(&self) -> Result<AdapterScales> {
        self.scales(&vec![1.0; self.0.adapters])
    }

    /// Returns whether the hooks belong to the model with these tables.
    pub(super) fn belong_to(&self, model: &Arc<[Table]>) -> bool {
        Arc::ptr_eq(&self.0.model, model)
    }

    /// Returns empty captured values; `None` if nothing is captured.
    pub(super) fn captured(&self) -> Option<Captured> {
        let LinkedHooks {
            layout, positions, ..
        } = &*self.0;
        (layout.width > 0).then(|| Captured::new(layout.clone(), positions.clone()))
    }
}

impl Drop for LinkedHooks {
    fn drop(&mut self) {
        (self.unlink)(&self.tables);
    }
}

impl std::fmt::Debug for LinkedHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkedHooks")
            .field("id", &self.id)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
