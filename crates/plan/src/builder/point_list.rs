//! Hooks of a table, and the points that it has.

use tabla_core::error::{Result, bail};
use tabla_core::op::hooks::{CaptureLayout, HookSpec, kind, matches};

/// Hooks of a table.
#[derive(Clone, Copy, Debug)]
pub struct Hooks<'a> {
    /// Number of the hooks, which is unique among those of a model.
    pub id: u32,
    /// Values to store and to change.
    pub spec: &'a HookSpec,
    /// Columns of the stored values; `None`: nothing is stored, see
    /// [`Builder::finish_layout`](super::Builder::finish_layout).
    pub layout: Option<&'a CaptureLayout>,
    /// Index of the constant of the first edit; the constants of the others follow.
    pub first_constant: u32,
    /// Number of adapters. Their matrices have the names of
    /// [`adapter_matrix`](tabla_core::op::hooks::adapter_matrix).
    pub adapters: u32,
}

/// Points of a table.
#[derive(Debug, Default)]
pub(super) struct Points {
    pub(super) names: Vec<String>,
    /// Points that hooks store.
    pub(super) captured: CaptureLayout,
}

impl Points {
    /// Checks that a pattern matches a point.
    pub(super) fn check(&self, pattern: &str, layers: usize) -> Result<()> {
        if self.names.iter().any(|name| matches(pattern, name)) {
            return Ok(());
        }
        let mut kinds: Vec<String> = self.names.iter().map(|name| kind(name)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        bail!(
            Argument,
            "no point matches {pattern:?}: the model has {}, where N is 0 to {}, and * stands for any text without a dot",
            kinds.join(", "),
            layers.saturating_sub(1)
        );
    }
}
