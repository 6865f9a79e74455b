//! Hyperparameters of mixtures of experts: the values of files, completed by those of architectures.

use super::layer_config::LayerValues;
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::op::functions::ExpertScore;
use crate::plan::builder::Router;

/// Values of a file from which the hyperparameters of experts are computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpertKeys {
    /// Number of experts in each layer; 0 in dense layers.
    count: LayerValues,
    /// Number of layers without experts, at the beginning.
    dense: u32,
    /// Number of shared experts of the width of the others.
    pub(super) shared: u32,
    /// Score, and whether weights are normalized in any case.
    gating: Option<(ExpertScore, Option<bool>)>,
    normalize: Option<bool>,
    scale: Option<f32>,
    groups: u32,
    groups_used: u32,
    /// Noise of `SparseMixer`'s training, half of the distance of near logits.
    jitter: Option<f32>,
}

/// Router functions by `expert_gating_func`: name, score, and whether weights are normalized in any
/// case. The softmax of the selected experts is the normalized softmax.
const GATING: &[(&str, ExpertScore, Option<bool>)] = &[
    ("softmax", ExpertScore::Softmax, None),
    ("sigmoid", ExpertScore::Sigmoid, None),
    (
        "softmax of the selected experts",
        ExpertScore::Softmax,
        Some(true),
    ),
    ("square root of softplus", ExpertScore::SqrtSoftplus, None),
];

impl ExpertKeys {
    /// Reads the keys of an architecture.
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, `Unsupported` for an unknown router function.
    pub(super) fn read(meta: &Metadata, arch: &str) -> Result<Self> {
        let key = |name: &str| format!("{arch}.{name}");
        let number = |name: &str| Ok(meta.u32(&key(name))?.unwrap_or(0));
        Ok(Self {
            count: LayerValues::read(meta, &key("expert_count"))?,
            dense: number("leading_dense_block_count")?,
            shared: number("expert_shared_count")?,
            gating: gating(number("expert_gating_func")?, &key("expert_gating_func"))?,
            normalize: meta.bool(&key("expert_weights_norm"))?,
            scale: meta.f32(&key("expert_weights_scale"))?,
            groups: number("expert_group_count")?,
            groups_used: number("expert_group_used_count")?,
            jitter: meta.f32(&key("router_jitter_noise"))?,
        })
    }

    /// Returns the largest number of experts of a layer.
    pub(super) fn max(&self) -> u32 {
        self.count.max()
    }

    /// Returns the number of experts of a layer; 0 for a dense layer.
    ///
    /// # Errors
    ///
    /// `Format` if the list is too short.
    pub(super) fn of(&self, layer: u32, arch: &str) -> Result<u32> {
        let count = self.count.of(layer, &format!("{arch}.expert_count"))?;
        Ok(if layer < self.dense { 0 } else { count })
    }

    /// Returns whether the file names the function of the router.
    pub(super) fn has_gating(&self) -> bool {
        self.gating.is_some()
    }

    /// Returns the router of a file with the values that it does not contain from `default`.
    pub(super) fn router(&self, used: u32, default: Router) -> Router {
        let mut router = Router { k: used, ..default };
        if let Some((score, normalize)) = self.gating {
            router.score = score;
            router.normalize = normalize.unwrap_or(router.normalize);
        }
        router.normalize = self.normalize.unwrap_or(router.normalize);
        router.scale = self.scale.unwrap_or(router.scale);
        if self.groups > 1 {
            router.groups = self.groups;
            router.groups_used = self.groups_used;
            router.group_best = group_best(router.score);
        }
        if router.score == ExpertScore::SparseMixer {
            router.eps = self.jitter.map_or(router.eps, |jitter| 2.0 * jitter);
        }
        router
    }
}

/// Returns the number of best experts of a group whose scores are summed.
pub(super) fn group_best(score: ExpertScore) -> u32 {
    match score {
        ExpertScore::Softmax => 1,
        _ => 2,
    }
}

/// Returns the router function with this number; `None` for 0, which files use for an absent one.
fn gating(number: u32, key: &str) -> Result<Option<(ExpertScore, Option<bool>)>> {
    let Some(index) = (number as usize).checked_sub(1) else {
        return Ok(None);
    };
    let Some((_, score, normalize)) = GATING.get(index) else {
        let known = (1..)
            .zip(GATING)
            .map(|(n, (name, ..))| format!("{n} ({name})"));
        let known: Vec<_> = known.collect();
        bail!(
            Unsupported,
            "{key}: unknown router function {number}; supported are {}",
            known.join(", ")
        );
    };
    Ok(Some((*score, *normalize)))
}
