//! Hyperparameters of layers with a recurrent state.

use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::plan::builder::{
    DELTA_KEY_MAX, DeltaHeads, SSM_KEY_MAX, SsmHeads, TAPS_MAX, conv_state_len,
};

/// Kind of the recurrent layers of an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentKind {
    /// The gated delta rule.
    DeltaNet,
    /// A state-space model (Mamba-2).
    Ssm,
    /// A gated short convolution (LFM2).
    ShortConv,
}

/// Hyperparameters of the layers with a recurrent state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recurrent {
    /// The gated delta rule.
    DeltaNet(DeltaNet),
    /// A state-space model.
    Ssm(Ssm),
    /// A gated short convolution.
    ShortConv(ShortConv),
}

/// Hyperparameters of the layers with the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNet {
    /// Number of taps of the convolution.
    pub taps: u32,
    /// Heads, and their sizes.
    pub at: DeltaHeads,
}

/// Hyperparameters of the layers with a state-space model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ssm {
    /// Number of taps of the convolution.
    pub taps: u32,
    /// Heads, and their sizes.
    pub at: SsmHeads,
    /// Range of time steps.
    pub dt_limit: [f32; 2],
    /// Whether the output is normalized before it is multiplied by the gate.
    pub norm_before_gate: bool,
    /// Factors of the sections `[z | x | B | C | dt]` of the input projection.
    pub scales: [f32; 5],
}

/// Hyperparameters of the layers with a gated short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// Number of taps of the convolution.
    pub taps: u32,
    /// Number of channels: the width of the residual stream.
    pub channels: u32,
}

/// Modules that some files store interleaved by key head, and their parts. Each key head has the rows of its query,
/// its key, its values and their gates, or of the betas and the decay rates of its values.
pub(crate) const FUSED_BY_KEY_HEAD: [(&str, &[&str]); 2] = [
    ("ssm_in", &["attn_qkv", "attn_gate"]),
    ("ssm_ba", &["ssm_beta", "ssm_alpha"]),
];

/// Key of checkpoints that are not GGUF files: range of the time steps of a state-space model.
pub const TIME_STEP_LIMIT: &str = "ssm.time_step_limit";

/// Key of checkpoints that are not GGUF files: whether the output of a state-space model is normalized before it is
/// multiplied by the gate.
pub const NORM_BEFORE_GATE: &str = "ssm.norm_before_gate";

/// Key of checkpoints that are not GGUF files: factors of the sections of the input projection of a state-space model.
pub const SSM_SCALES: &str = "ssm.scales";

/// Maximum number of heads, and of elements of a value: sizes of a state then fit 32 bits.
const HEADS_MAX: u32 = 512;
const VALUE_MAX: u32 = 512;

/// Values of a file from which [`Recurrent`] is computed; 0 for absent ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecurrentKeys {
    arch: String,
    taps: u32,
    short_taps: u32,
    key_dim: u32,
    groups: u32,
    heads: u32,
    width: u32,
    dt_limit: Option<Vec<f32>>,
    norm_before_gate: bool,
    scales: Option<Vec<f32>>,
}

impl RecurrentKeys {
    /// Reads the keys with the prefix of an architecture.
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type.
    pub(super) fn read(meta: &Metadata, arch: &str) -> Result<Self> {
        let key = |name: &str| format!("{arch}.{name}");
        let number = |name: &str| Ok(meta.u32(&key(name))?.unwrap_or(0));
        Ok(Self {
            taps: number("ssm.conv_kernel")?,
            short_taps: number("shortconv.l_cache")?,
            key_dim: number("ssm.state_size")?,
            groups: number("ssm.group_count")?,
            heads: number("ssm.time_step_rank")?,
            width: number("ssm.inner_size")?,
            dt_limit: meta.f32s(&key(TIME_STEP_LIMIT))?,
            norm_before_gate: meta.bool(&key(NORM_BEFORE_GATE))?.unwrap_or(false),
            scales: meta.f32s(&key(SSM_SCALES))?,
            arch: arch.to_string(),
        })
    }

    /// Returns the hyperparameters of recurrent layers of a kind in a model of width `dim`; `None` if the file has no
    /// keys of such layers.
    ///
    /// # Errors
    ///
    /// `Format` for a value out of range.
    pub(super) fn complete(&self, kind: RecurrentKind, dim: u32) -> Result<Option<Recurrent>> {
        Ok(match kind {
            RecurrentKind::ShortConv if self.short_taps > 0 => {
                self.check("shortconv.l_cache", self.short_taps, TAPS_MAX)?;
                Some(Recurrent::ShortConv(ShortConv {
                    taps: self.short_taps,
                    channels: dim,
                }))
            }
            RecurrentKind::DeltaNet if self.heads > 0 => {
                self.check_heads(DELTA_KEY_MAX)?;
                Some(Recurrent::DeltaNet(DeltaNet {
                    taps: self.taps,
                    at: DeltaHeads {
                        key_heads: self.groups,
                        heads: self.heads,
                        key_dim: self.key_dim,
                        value_dim: self.width / self.heads,
                        interleaved: false,
                    },
                }))
            }
            RecurrentKind::Ssm if self.heads > 0 => {
                self.check_heads(SSM_KEY_MAX)?;
                Some(Recurrent::Ssm(Ssm {
                    taps: self.taps,
                    at: SsmHeads {
                        groups: self.groups,
                        heads: self.heads,
                        key_dim: self.key_dim,
                        value_dim: self.width / self.heads,
                    },
                    dt_limit: self.dt_limit()?,
                    norm_before_gate: self.norm_before_gate,
                    scales: self.scales()?,
                }))
            }
            _ => None,
        })
    }

    fn check(&self, name: &str, value: u32, max: u32) -> Result<()> {
        if !(1..=max).contains(&value) {
            let arch = &self.arch;
            bail!(Format, "{arch}.{name}: expected 1 to {max}, got {value}");
        }
        Ok(())
    }

    fn check_heads(&self, key_max: u32) -> Result<()> {
        let Self {
            arch,
            groups,
            heads,
            width,
            ..
        } = self;
        self.check("ssm.time_step_rank", *heads, HEADS_MAX)?;
        self.check("ssm.group_count", *groups, *heads)?;
        self.check("ssm.conv_kernel", self.taps, TAPS_MAX)?;
        self.check("ssm.state_size", self.key_dim, key_max)?;
        self.check("ssm.inner_size", *width, heads * VALUE_MAX)?;
        if !heads.is_multiple_of(*groups) || !width.is_multiple_of(*heads) {
            bail!(
                Format,
                "{arch}.ssm.group_count {groups}, inner_size {width}: expected a divisor and a multiple of \
                 time_step_rank {heads}"
            );
        }
        Ok(())
    }

    /// Returns the factors of the sections of the input projection.
    fn scales(&self) -> Result<[f32; 5]> {
        let Some(scales) = &self.scales else {
            return Ok([1.0; 5]);
        };
        match scales.as_slice().try_into() {
            Ok(scales) => Ok(scales),
            Err(_) => bail!(
                Format,
                "{}.{SSM_SCALES}: expected 5 numbers, got {}",
                self.arch,
                scales.len()
            ),
        }
    }

    /// Returns the range of time steps: by default all positive numbers.
    fn dt_limit(&self) -> Result<[f32; 2]> {
        match self.dt_limit.as_deref() {
            None => Ok([0.0, f32::MAX]),
            Some(&[low, high]) if 0.0 <= low && low <= high => Ok([low, high.min(f32::MAX)]),
            Some(other) => bail!(
                Format,
                "{}.{TIME_STEP_LIMIT}: expected two numbers in ascending order, got {other:?}",
                self.arch
            ),
        }
    }
}

impl Recurrent {
    /// Returns the delta rule if the recurrent layers are of this kind.
    pub fn delta(&self) -> Option<DeltaNet> {
        match self {
            Self::DeltaNet(delta) => Some(*delta),
            _ => None,
        }
    }

    /// Returns the number of channels of the convolution.
    pub(crate) fn channels(&self) -> u32 {
        match self {
            Self::DeltaNet(delta) => delta.at.channels(),
            Self::Ssm(ssm) => ssm.at.channels(),
            Self::ShortConv(conv) => conv.channels,
        }
    }

    /// Returns the bytes of the states of a sequence in a layer: of the convolution and of the recurrence.
    pub(crate) fn state_bytes(&self) -> [u64; 2] {
        let (taps, state) = match self {
            Self::DeltaNet(DeltaNet { taps, at }) => (taps, at.state_len()),
            Self::Ssm(Ssm { taps, at, .. }) => (taps, at.state_len()),
            Self::ShortConv(ShortConv { taps, .. }) => (taps, 0),
        };
        let lengths = [conv_state_len(*taps, self.channels()), state];
        lengths.map(|n| u64::from(n) * size_of::<f32>() as u64)
    }
}
