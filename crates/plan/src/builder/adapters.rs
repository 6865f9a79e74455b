//! Low-rank adapters (`LoRA`): products that are added to those of the model.

use super::base::Builder;
use super::operand::X;
use tabla_core::op::hooks::adapter_matrix;

impl Builder<'_> {
    /// Emits `y += s B (A x)` for each adapter of the hooks that has the module `name`, with the scale
    /// `s` of the sequence: low-rank adaptation (Hu et al. 2021).
    pub fn adapters(&mut self, name: &str, x: X, y: X) {
        let Some(hooks) = self.hooks else {
            return;
        };
        for adapter in 0..hooks.adapters {
            let [a, b] = ["a", "b"].map(|part| adapter_matrix(name, part, adapter));
            let rank = self.rows_of(&a);
            if rank == 0 {
                continue;
            }
            let a = self.weight(&a, rank, x.cols);
            let b = self.weight(&b, y.cols, rank);
            let low = self.mat("lora", a, x);
            self.adapter_scale(hooks.id, [hooks.adapters, adapter], low);
            self.mat_add(b, low, y);
        }
    }
}
