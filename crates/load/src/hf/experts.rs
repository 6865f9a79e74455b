//! Maps the hyperparameters of experts in `config.json` to GGUF keys.

use super::config::{HfConfig, shown};
use super::keys::ValueKind::{self, Flag, Float, Integer};
use crate::arch::LayerKind;
use crate::error::{Result, bail};
use crate::format::write::Writer;
use serde_json::Value;

/// Paths of the number of experts.
const COUNT: &[&str] = &["num_experts", "num_local_experts", "n_routed_experts"];

/// GGUF key without the architecture prefix, type, and paths, as in [`KEYS`](super::keys::KEYS).
const KEYS: &[(&str, ValueKind, &[&str])] = &[
    (
        "expert_used_count",
        Integer,
        &["num_experts_per_tok", "top_k_experts"],
    ),
    (
        "expert_feed_forward_length",
        Integer,
        &["moe_intermediate_size"],
    ),
    ("expert_shared_count", Integer, &["n_shared_experts"]),
    (
        "expert_shared_feed_forward_length",
        Integer,
        &[
            "shared_expert_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "shared_intermediate_size",
        ],
    ),
    (
        "leading_dense_block_count",
        Integer,
        &["first_k_dense_replace", "num_dense_layers"],
    ),
    ("expert_weights_norm", Flag, &["norm_topk_prob"]),
    ("expert_weights_scale", Float, &["routed_scaling_factor"]),
    ("moe_latent_size", Integer, &["moe_latent_size"]),
    ("router_jitter_noise", Float, &["router_jitter_noise"]),
];

/// Keys of the groups of experts.
const GROUPS: &[(&str, ValueKind, &[&str])] = &[
    ("expert_group_count", Integer, &["n_group"]),
    ("expert_group_used_count", Integer, &["topk_group"]),
];

/// Paths of the router function.
const SCORES: &[&str] = &[
    "scoring_func",
    "score_function",
    "score_func",
    "moe_router_activation",
];

/// Names of router functions, by `expert_gating_func` minus 1.
const GATING: [&str; 4] = ["softmax", "sigmoid", "topk_softmax", "sqrtsoftplus"];

/// Values of `topk_method`, and whether experts are selected from groups.
const METHODS: [(&str, bool); 3] = [
    ("greedy", false),
    ("group_limited_greedy", true),
    ("noaux_tc", true),
];

impl HfConfig {
    /// Writes the hyperparameters of experts, if the model has any.
    pub(super) fn write_experts(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let key = |name: &str| format!("{arch}.{name}");
        let count = self.expert_count()?;
        if count == 0 {
            return Ok(());
        }
        let groups = if self.selects_from_groups()? {
            GROUPS
        } else {
            &[]
        };
        for (name, kind, paths) in KEYS.iter().chain(groups) {
            if let Some(path) = self.first(paths) {
                self.copy(path, *kind, &key(name), w)?;
            }
        }
        if let Some(gating) = self.gating()? {
            w.set(&key("expert_gating_func"), gating);
        }
        let layers = self.expert_layers()?;
        if layers.contains(&false) {
            let counts = layers.iter().map(|experts| u32::from(*experts) * count);
            w.list(&key("expert_count"), &counts.collect::<Vec<_>>());
        } else {
            w.set(&key("expert_count"), count);
        }
        Ok(())
    }

    /// Returns the number of experts; 0 for a dense model.
    pub(super) fn expert_count(&self) -> Result<u32> {
        let count = match self.first(COUNT) {
            Some(path) => self.integer(path)?.unwrap_or(0),
            None => 0,
        };
        let mut disabled = self.boolean("enable_moe_block")? == Some(false);
        if let Some(kinds) = self.layer_kinds()? {
            let feed_forward = |kind: &LayerKind| *kind == LayerKind::FeedForward;
            let experts = kinds.contains(&LayerKind::Experts);
            disabled |= kinds.iter().any(feed_forward) && !experts;
        }
        Ok(if disabled { 0 } else { count })
    }

    /// Returns the number of the router function.
    fn gating(&self) -> Result<Option<u32>> {
        let Some(path) = self.first(SCORES) else {
            return Ok(None);
        };
        let name = self.text(path)?;
        let number = (1..).zip(GATING).find(|(_, known)| Some(*known) == name);
        match number {
            Some((number, _)) => Ok(Some(number)),
            None => bail!(
                Unsupported,
                "{path}: unknown router function {:?}; supported are {}",
                name.unwrap_or_default(),
                GATING.join(", ")
            ),
        }
    }

    /// Returns whether experts are selected from the best groups.
    fn selects_from_groups(&self) -> Result<bool> {
        let Some(name) = self.text("topk_method")? else {
            return Ok(true);
        };
        match METHODS.iter().find(|(known, _)| *known == name) {
            Some((_, groups)) => Ok(*groups),
            None => bail!(
                Unsupported,
                "topk_method: unknown method {name:?}; supported are {}",
                METHODS.map(|(name, _)| name).join(", ")
            ),
        }
    }

    /// Returns for each layer whether it has experts: by name, or every n-th layer except those of a list.
    fn expert_layers(&self) -> Result<Vec<bool>> {
        let layers = self.layers()?;
        if let Some(types) = self.typed("mlp_layer_types", "a list", Value::as_array)? {
            let has_experts = |kind: &Value| match kind.as_str() {
                Some("sparse") => Ok(true),
                Some("dense") => Ok(false),
                _ => bail!(
                    Unsupported,
                    "mlp_layer_types: unsupported layer type {}",
                    shown(kind)
                ),
            };
            return types.iter().map(has_experts).collect();
        }
        if let Some(kinds) = self.layer_kinds()?
            && kinds.contains(&LayerKind::FeedForward)
        {
            let experts = kinds.iter().map(|kind| *kind == LayerKind::Experts);
            return Ok(experts.collect());
        }
        let list = |value: &Value| -> Option<Vec<u64>> {
            value.as_array()?.iter().map(Value::as_u64).collect()
        };
        let dense = self.typed("mlp_only_layers", "a list of layers", list)?;
        let dense = dense.unwrap_or_default();
        let step = self.integer("decoder_sparse_step")?.unwrap_or(1);
        if step == 0 {
            bail!(
                Format,
                "decoder_sparse_step: expected a positive number, got 0"
            );
        }
        let has_experts =
            |layer: u32| (layer + 1).is_multiple_of(step) && !dense.contains(&layer.into());
        Ok((0..layers).map(has_experts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::format::{Metadata, open_bytes};
    use crate::op::functions::ExpertScore;
    use crate::plan::builder::Router;
    use serde_json::json;

    fn metadata(changes: Value) -> Result<Metadata> {
        let mut config = json!({
            "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
            "intermediate_size": 96, "vocab_size": 288, "num_experts": 12,
            "num_experts_per_tok": 3, "moe_intermediate_size": 8,
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let mut w = Writer::new();
        HfConfig::parse(&config.to_string())?.write("test", &mut w)?;
        Ok(open_bytes("test", w.finish()?)?.metadata)
    }

    fn config(changes: Value) -> Result<arch::Config> {
        let config = arch::Config::read(&metadata(changes)?)?;
        let arch = arch::find(&config.architecture)?;
        config.validate(arch)
    }

    #[track_caller]
    fn assert_rejected(changes: Value, part: &str) {
        let e = config(changes).expect_err(part);
        assert!(e.message().contains(part), "expected {part:?} in: {e}");
    }

    #[test]
    fn reads_routers() {
        let router = |changes: Value| config(changes).unwrap().experts.router;
        let plain = Router::softmax(3);
        assert_eq!(router(json!({})), plain);
        let normalized = Router {
            normalize: true,
            ..plain
        };
        assert_eq!(router(json!({ "norm_topk_prob": true })), normalized);
        let chosen = json!({ "moe_router_activation": "topk_softmax", "norm_topk_prob": null });
        assert_eq!(router(chosen), normalized);
        let grouped = json!({ "scoring_func": "sigmoid", "routed_scaling_factor": 2.5,
            "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc" });
        let expected = Router {
            score: ExpertScore::Sigmoid,
            scale: 2.5,
            groups: 4,
            groups_used: 2,
            group_best: 2,
            ..plain
        };
        assert_eq!(router(grouped), expected);
        let largest =
            json!({ "n_group": 3, "topk_group": 1, "topk_method": "group_limited_greedy" });
        let expected = Router { groups: 3, ..plain };
        assert_eq!(router(largest), expected);
        let greedy = json!({ "n_group": 3, "topk_group": 1, "topk_method": "greedy" });
        assert_eq!(router(greedy), plain);
        let mixer = json!({ "model_type": "phimoe", "router_jitter_noise": 0.25 });
        let mixer = router(mixer);
        assert_eq!((mixer.score, mixer.eps), (ExpertScore::SparseMixer, 0.5));
    }

    #[test]
    fn reads_layers_without_experts() {
        let experts = |changes: Value| {
            let layers = config(changes).unwrap().layer_configs;
            layers.iter().map(|l| l.experts).collect::<Vec<_>>()
        };
        assert_eq!(experts(json!({})), [12; 4]);
        let every_other = json!({ "decoder_sparse_step": 2, "mlp_only_layers": [3] });
        assert_eq!(experts(every_other), [0, 12, 0, 0]);
        assert_eq!(experts(json!({ "mlp_only_layers": [1] })), [12, 0, 12, 12]);
        assert_eq!(
            experts(json!({ "first_k_dense_replace": 3 })),
            [0, 0, 0, 12]
        );
        let types = json!({ "mlp_layer_types": ["dense", "sparse", "sparse", "dense"] });
        assert_eq!(experts(types), [0, 12, 12, 0]);
        let dense = json!({ "model_type": "gemma4_text", "enable_moe_block": false });
        assert_eq!(experts(dense), [0; 4]);
    }

    #[test]
    fn reads_widths_of_experts() {
        let widths = |changes: Value| {
            let c = config(changes).unwrap();
            let e = c.experts;
            (e.width, e.shared_width, e.shared_gate)
        };
        assert_eq!(widths(json!({})), (8, 0, false));
        assert_eq!(widths(json!({ "n_shared_experts": 2 })), (8, 16, false));
        let qwen2 = json!({ "model_type": "qwen2_moe", "shared_expert_intermediate_size": 20 });
        assert_eq!(widths(qwen2), (8, 20, true));
        let mixtral = json!({ "model_type": "mixtral", "moe_intermediate_size": null });
        assert_eq!(widths(mixtral), (96, 0, false));
    }

    #[test]
    fn rejects_unknown_routers() {
        let newest = json!({ "scoring_func": "newest" });
        assert_rejected(newest, "scoring_func: unknown router function \"newest\"");
        let newest = json!({ "topk_method": "newest" });
        assert_rejected(newest, "topk_method: unknown method \"newest\"");
        let types = json!({ "mlp_layer_types": ["newest"] });
        assert_rejected(types, "mlp_layer_types: unsupported layer type \"newest\"");
        let short = json!({ "mlp_layer_types": ["dense"] });
        assert_rejected(short, "expert_count has 1 values, but layer 1 needs one");
        assert_rejected(
            json!({ "decoder_sparse_step": 0 }),
            "decoder_sparse_step: expected a positive number, got 0",
        );
        let groups = json!({ "n_group": 5, "topk_group": 1 });
        assert_rejected(
            groups,
            "expert_group_count: expected at most 64 equal groups",
        );
        let groups = json!({ "n_group": 4, "topk_group": 5 });
        assert_rejected(groups, "expert_group_used_count: expected 1 to 4, got 5");
        let groups = json!({ "n_group": 6, "topk_group": 1 });
        assert_rejected(groups, "expert_used_count: expected 1 to 2, got 3");
    }
}
