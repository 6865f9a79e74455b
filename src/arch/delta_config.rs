//! Hyperparameters of layers with the gated delta rule.

use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::op::builder::{DELTA_KEY_MAX, DeltaHeads, TAPS_MAX, conv_state_len};

/// Hyperparameters of the layers with the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeltaNet {
    /// Number of taps of the convolution.
    pub taps: u32,
    /// Heads, and their sizes.
    pub at: DeltaHeads,
}

/// Modules that some files store interleaved by key head, and their parts. Each key head has the rows of its query,
/// its key, its values and their gates, or of the betas and the decay rates of its values.
pub(crate) const FUSED_BY_KEY_HEAD: [(&str, &[&str]); 2] = [
    ("ssm_in", &["attn_qkv", "attn_gate"]),
    ("ssm_ba", &["ssm_beta", "ssm_alpha"]),
];

/// Maximum number of heads, and of elements of a value: sizes of a state then fit 32 bits.
const HEADS_MAX: u32 = 512;
const VALUE_MAX: u32 = 512;

impl DeltaNet {
    /// Reads the keys with the prefix of an architecture; `None` if there are none.
    ///
    /// # Errors
    ///
    /// `Format` for a value out of range.
    pub(super) fn read(meta: &Metadata, arch: &str) -> Result<Option<Self>> {
        let number = |name: &str| Ok(meta.u32(&format!("{arch}.ssm.{name}"))?.unwrap_or(0));
        let heads = number("time_step_rank")?;
        let width = number("inner_size")?;
        if heads == 0 {
            return Ok(None);
        }
        let taps = number("conv_kernel")?;
        let key_heads = number("group_count")?;
        let key_dim = number("state_size")?;
        for (name, value, max) in [
            ("time_step_rank", heads, HEADS_MAX),
            ("group_count", key_heads, heads),
            ("conv_kernel", taps, TAPS_MAX),
            ("state_size", key_dim, DELTA_KEY_MAX),
            ("inner_size", width, heads * VALUE_MAX),
        ] {
            if !(1..=max).contains(&value) {
                bail!(
                    Format,
                    "{arch}.ssm.{name}: expected 1 to {max}, got {value}"
                );
            }
        }
        if !heads.is_multiple_of(key_heads) || !width.is_multiple_of(heads) {
            bail!(
                Format,
                "{arch}.ssm.group_count {key_heads}, inner_size {width}: expected a divisor and a multiple of \
                 time_step_rank {heads}"
            );
        }
        Ok(Some(Self {
            taps,
            at: DeltaHeads {
                key_heads,
                heads,
                key_dim,
                value_dim: width / heads,
                interleaved: false,
            },
        }))
    }

    /// Returns the bytes of the states of a sequence in a layer: of the convolution and of the delta rule.
    pub(crate) fn state_bytes(&self) -> [u64; 2] {
        let lengths = [
            conv_state_len(self.taps, self.at.channels()),
            self.at.state_len(),
        ];
        lengths.map(|n| u64::from(n) * size_of::<f32>() as u64)
    }
}
