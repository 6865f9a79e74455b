//! The output projection (`lm_head`), requantized to the type of an option.

use super::{Catalog, HEAD};
use crate::dtype::DType;
use crate::encode::{LM_HEAD_TYPES, encode_weight};
use crate::error::{Result, bail};
use crate::plan::builder::{WeightInfo, Weights};
use crate::weight::Weight;

impl Catalog {
    /// Requantizes the output projection (`lm_head`). A tied embedding keeps its own type.
    pub(super) fn encode_head(&mut self, dtype: DType, threads: u32) -> Result<()> {
        if !LM_HEAD_TYPES.contains(&dtype) {
            let known = LM_HEAD_TYPES.map(DType::name).join(", ");
            bail!(
                Argument,
                "unsupported lm_head type {dtype}; supported types are {known}"
            );
        }
        if self.arch.encoder {
            bail!(
                Argument,
                "lm_head type {dtype}: {} models have no output projection",
                self.arch.name
            );
        }
        // The recipe reports a missing output projection.
        let Some(WeightInfo {
            index,
            dtype: stored,
            ..
        }) = self.find(HEAD)
        else {
            return Ok(());
        };
        if stored == dtype {
            return Ok(());
        }
        let head = &self.weights[index as usize];
        let head = encode_weight(head, dtype, &[], self.file(), threads)?;
        if !self.tied {
            self.weights[index as usize] = head;
            self.digit_scales[index as usize] = None;
            return Ok(());
        }
        let Ok(added) = u32::try_from(self.weights.len()) else {
            bail!(TooLarge, "{} tensors", self.weights.len());
        };
        self.tied = false;
        self.by_name.insert(HEAD.to_string(), added);
        self.digit_scales.push(None);
        self.weights.push(Weight {
            name: HEAD.to_string(),
            ..head
        });
        Ok(())
    }
}
