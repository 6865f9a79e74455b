//! The catalog: a file's tensors as tables want them, its quirks resolved.

use crate::arch::{Arch, Config};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::exec::Tensors;
use crate::format::Directory;
use crate::op::builder::{WeightInfo, Weights};
use crate::op::table::{Place, Table};
use std::collections::HashSet;

/// A file's tensors by name and number, and the constants that loading computed.
#[derive(Debug)]
pub(super) struct Catalog {
    file: Directory,
    /// Per tensor of the file: what the builder may know, or the type that is not built.
    weights: Vec<Result<WeightInfo, String>>,
    /// Whether `output.weight` is the token embedding.
    tied: bool,
    rope_freqs: Vec<f32>,
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";
const ROPE_FACTORS: &str = "rope_freqs.weight";

impl Catalog {
    /// Resolves what files of one architecture may do differently.
    ///
    /// # Errors
    ///
    /// `Format` for a tensor whose shape is no matrix of this build's sizes.
    pub(super) fn resolve(
        file: Directory,
        arch: &'static Arch,
        mut config: Config,
    ) -> Result<(Self, Config)> {
        let weights = file.tensors.iter().enumerate().map(|(index, tensor)| {
            let small = |n: u64| {
                u32::try_from(n).map_err(|_| format!("tensor {}: {n} rows or columns", tensor.name))
            };
            let dtype = tensor.dtype.known().ok_or_else(|| {
                format!(
                    "tensor {} is {}, which is not supported yet",
                    tensor.name,
                    tensor.dtype.name()
                )
            })?;
            Ok(WeightInfo {
                index: u32::try_from(index).map_err(|_| "too many tensors".to_string())?,
                dtype,
                rows: small(tensor.rows())?,
                cols: small(tensor.cols())?,
            })
        });
        let weights = weights.collect();
        let tied = file.tensor(HEAD).is_none();
        let catalog = Self {
            file,
            weights,
            tied,
            rope_freqs: Vec::new(),
        };
        // The embedding's rows are the vocabulary; a key or a token list may be shorter.
        if let Some(embedding) = catalog.find(EMBEDDING) {
            config.vocab = embedding.rows;
        }
        config.half_split = arch.half_split;
        catalog.check_types()?;
        Ok((catalog, config))
    }

    /// Computes the RoPE frequencies, with the file's factors where it has some.
    pub(super) fn add_rope(&mut self, config: &Config) -> Result<()> {
        let factors = match self.file.tensor(ROPE_FACTORS) {
            None => None,
            Some(tensor) if tensor.dtype.known() == Some(DType::F32) => {
                let bytes = self.file.bytes(tensor);
                let floats = bytes
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                Some(floats.collect::<Vec<f32>>())
            }
            Some(tensor) => bail!(
                Unsupported,
                "tensor {ROPE_FACTORS} is {}",
                tensor.dtype.name()
            ),
        };
        self.rope_freqs = config.rope_freqs(factors.as_deref())?;
        Ok(())
    }

    /// Refuses a tensor type that no kernel reads before a recipe stumbles over it.
    fn check_types(&self) -> Result<()> {
        match self.weights.iter().find_map(|w| w.as_ref().err()) {
            Some(message) => Err(Error::new(ErrorKind::Unsupported, message)),
            None => Ok(()),
        }
    }

    /// Refuses a layer's tensor that the table leaves out: a bias that the recipe does not know
    /// would make every answer wrong without a word.
    pub(super) fn check_all_used(&self, table: &Table) -> Result<()> {
        let used: HashSet<Place> = table.slots.iter().map(|slot| slot.place).collect();
        for (index, tensor) in (0..).zip(&self.file.tensors) {
            if tensor.name.starts_with("blk.") && !used.contains(&Place::Weight(index)) {
                bail!(
                    Unsupported,
                    "tensor {} is no part of this architecture as it is built here",
                    tensor.name
                );
            }
        }
        Ok(())
    }

    /// The file.
    pub(super) fn file(&self) -> &Directory {
        &self.file
    }

    /// `general.name`.
    pub(super) fn name(&self) -> &str {
        self.file
            .metadata
            .str("general.name")
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Elements of all tensors.
    pub(super) fn parameters(&self) -> u64 {
        self.file
            .tensors
            .iter()
            .map(|t| t.rows().saturating_mul(t.cols()))
            .sum()
    }

    /// Bytes of all tensors.
    pub(super) fn weight_bytes(&self) -> u64 {
        self.file.tensors.iter().map(|t| t.bytes).sum()
    }

    /// Bytes of the file or files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file.file_bytes()
    }
}

impl Weights for Catalog {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let name = if self.tied && name == HEAD {
            EMBEDDING
        } else {
            name
        };
        let index = self.file.index(name)?;
        self.weights[index].as_ref().ok().copied()
    }
}

impl Tensors for Catalog {
    fn weight(&self, index: u32) -> &[u8] {
        self.file.bytes(&self.file.tensors[index as usize])
    }

    fn constant(&self, _index: u32) -> &[u8] {
        bytemuck::cast_slice(&self.rope_freqs)
    }
}
