//! Weights of a compiled model in the layouts of devices.

use crate::exec::Layout;
use crate::format::Directory;
use std::collections::{BTreeMap, BTreeSet};

/// Beginning of the names of the tensors with the tokenizer.
pub(crate) const TOKENIZER: &str = "tabla.tokenizer.";

/// Tensors with the weights of a compiled model.
#[derive(Debug, Default)]
pub(super) struct StoredWeights {
    layouts: BTreeMap<(u32, Layout), usize>,
    /// Weights without their elements as in files.
    in_layouts_only: BTreeSet<u32>,
}

impl StoredWeights {
    /// Adds the tensor with a weight in a layout.
    pub(super) fn add(&mut self, index: u32, layout: Layout, tensor: usize) {
        self.layouts.insert((index, layout), tensor);
    }

    /// Records that the elements of a weight are only in layouts of devices.
    pub(super) fn set_in_layouts_only(&mut self, index: u32) {
        self.in_layouts_only.insert(index);
    }

    /// Returns whether the elements of a weight are only in layouts of devices.
    pub(super) fn is_in_layouts_only(&self, index: u32) -> bool {
        self.in_layouts_only.contains(&index)
    }

    /// Returns the bytes of a weight in a layout.
    pub(super) fn in_layout<'a>(
        &self,
        file: &'a Directory,
        index: u32,
        layout: Layout,
    ) -> Option<&'a [u8]> {
        Some(file.bytes(&file.tensors[self.tensor(index, layout)?]))
    }

    /// Returns the index of the tensor with a weight in a layout.
    pub(super) fn tensor(&self, index: u32, layout: Layout) -> Option<usize> {
        self.layouts.get(&(index, layout)).copied()
    }
}
