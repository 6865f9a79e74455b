//! Maps the hyperparameters of `config.json` to GGUF keys.

use super::config::{BIDIRECTIONAL, HfConfig};
use crate::arch::{self, ConfigRule};
use crate::error::{Result, bail};
use crate::format::write::Writer;
use serde_json::Value;

/// Type of a value.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    Integer,
    Float,
    Text,
    Flag,
}

use ValueKind::{Flag, Float, Integer, Text};

/// GGUF key of the factor of embeddings, which converted weights of some models have.
const EMBEDDING_SCALE: &str = "embedding_scale";

/// GGUF key of the number of layers, which a list of layers may replace.
const BLOCK_COUNT: &str = "block_count";

/// GGUF key without the architecture prefix, type, and dotted paths in `config.json`. The first
/// path that exists is used.
pub(super) const KEYS: &[(&str, ValueKind, &[&str])] = &[
    (BLOCK_COUNT, Integer, &["num_hidden_layers", "n_layer"]),
    ("embedding_length", Integer, &["hidden_size", "n_embd"]),
    (
        "attention.head_count",
        Integer,
        &["num_attention_heads", "n_head"],
    ),
    ("attention.layer_norm_rms_epsilon", Float, &["rms_norm_eps"]),
    (
        "attention.layer_norm_epsilon",
        Float,
        &[
            "layer_norm_epsilon",
            "layer_norm_eps",
            "norm_eps",
            "norm_epsilon",
        ],
    ),
    ("attention.causal", Flag, &["is_causal", "causal"]),
    ("attention.scale", Float, &["attention_multiplier"]),
    (
        "attention.temperature_scale",
        Float,
        &[
            "rope_parameters.llama_4_scaling_beta",
            "rope_scaling.llama_4_scaling_beta",
        ],
    ),
    ("attn_logit_softcapping", Float, &["attn_logit_softcapping"]),
    (
        "final_logit_softcapping",
        Float,
        &["final_logit_softcapping"],
    ),
    (EMBEDDING_SCALE, Float, &["embedding_multiplier"]),
    ("residual_scale", Float, &["residual_multiplier"]),
    ("logit_scale", Float, &["logits_scaling"]),
    (
        "embedding_length_per_layer_input",
        Integer,
        &["hidden_size_per_layer_input"],
    ),
    (
        "attention.shared_kv_layers",
        Integer,
        &["num_kv_shared_layers"],
    ),
    ("altup.num_inputs", Integer, &["altup_num_inputs"]),
    ("altup.active_idx", Integer, &["altup_active_idx"]),
    ("swiglu_alpha", Float, &["swiglu_alpha"]),
    ("swiglu_limit", Float, &["swiglu_limit"]),
    (
        "ssm.conv_kernel",
        Integer,
        &["linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel"],
    ),
    (
        "ssm.state_size",
        Integer,
        &["linear_key_head_dim", "mamba_d_state", "ssm_state_size"],
    ),
    (
        "ssm.group_count",
        Integer,
        &["linear_num_key_heads", "mamba_n_groups", "n_groups"],
    ),
    (
        "ssm.time_step_rank",
        Integer,
        &["linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"],
    ),
    ("shortconv.l_cache", Integer, &["conv_L_cache"]),
    ("vocab_size", Integer, &["vocab_size"]),
    (
        "hidden_activation",
        Text,
        &[
            "hidden_activation",
            "hidden_act",
            "activation_function",
            "mlp_hidden_act",
        ],
    ),
    (
        "rope.freq_base",
        Float,
        &[
            "rope_theta",
            "theta",
            "rope_parameters.rope_theta",
            "rope_parameters.full_attention.rope_theta",
            "global_rope_theta",
            "rotary_emb_base",
        ],
    ),
    (
        "rope.freq_base_swa",
        Float,
        &[
            "rope_local_base_freq",
            "rope_parameters.sliding_attention.rope_theta",
            "local_rope_theta",
        ],
    ),
];

/// Paths of the trained context length. Some files also contain the scaled one.
const CONTEXT: &[&str] = &[
    "max_trained_positions",
    "max_position_embeddings",
    "n_positions",
];

/// A key, and whether a value is supported.
type FixedOption = (&'static str, fn(&Value) -> bool);

/// Options with a single supported value, which the tensors do not reveal.
const FIXED: &[FixedOption] = &[
    ("position_embedding_type", |v| v == "absolute"),
    ("scale_attn_by_inverse_layer_idx", |v| v == false),
    ("rotary_emb_interleaved", |v| v == false),
    ("rotary_emb_fraction", |v| v.as_f64() == Some(1.0)),
    ("prenorm", |v| v == false),
    ("parallel_block", |v| v == false),
    ("clip_qkv", Value::is_null),
    ("classifier_activation", |v| v == "gelu"),
    ("altup_correct_scale", |v| v == true),
    ("rope_interleave", |v| v == true),
    ("moe_layer_freq", |v| v == 1),
    // BitNet: ternary weights and int8 activations.
    ("weight_bits", |v| v == 1),
    ("input_bits", |v| v == 8),
];

impl HfConfig {
    /// Writes the GGUF keys of this model, except those of the tokenizer. For an unsupported
    /// architecture, writes only its name.
    pub(super) fn write(&self, name: &str, w: &mut Writer<'_>) -> Result<()> {
        let model_type = self.model_type()?;
        let arch = self.arch()?;
        w.set("general.architecture", arch.unwrap_or(model_type));
        w.set("general.name", name);
        let Some(arch) = arch else {
            return Ok(());
        };
        if arch::is_speech(arch) {
            return self.write_speech(w);
        }
        let blocks = match self
            .predicts_after(arch::find(arch)?)?
            .filter(|_| self.predictors > 0)
        {
            Some(layers) => {
                w.set(&format!("{arch}.nextn_predict_layers"), self.predictors);
                Some(layers.saturating_add(self.predictors))
            }
            None => self.listed_layers()?,
        };
        blocks.map(|blocks| w.set(&format!("{arch}.{BLOCK_COUNT}"), blocks));
        for (key, kind, paths) in KEYS {
            let folded = *key == EMBEDDING_SCALE && self.has_folded_multipliers();
            if *key == BLOCK_COUNT && blocks.is_some() || folded {
                continue;
            }
            if let Some(path) = self.first(paths) {
                self.copy(path, *kind, &format!("{arch}.{key}"), w)?;
            }
        }
        if self.hf_model.rule == Some(ConfigRule::RmsNormEps)
            && let Some(path) = self.first(&["block_norm_eps", "norm_eps"])
        {
            let key = format!("{arch}.attention.layer_norm_rms_epsilon");
            self.copy(path, Float, &key, w)?;
        }
        if arch == arch::EAGLE3 {
            self.write_drafter(arch, w)?;
        }
        self.write_derived(arch, w)?;
        self.write_scaling(arch, w)?;
        self.write_experts(arch, w)?;
        self.write_layers(arch, w)?;
        self.write_sections(arch, w)?;
        self.write_states(arch, w)?;
        self.write_multipliers(arch, w)
    }

    /// Copies the value at a path, if present.
    pub(super) fn copy(
        &self,
        path: &str,
        kind: ValueKind,
        key: &str,
        w: &mut Writer<'_>,
    ) -> Result<()> {
        match kind {
            Integer => self.integer(path)?.map(|n| w.set(key, n)),
            Float => self.float(path)?.map(|n| w.set(key, n)),
            Text => self.text(path)?.map(|t| w.set(key, t)),
            Flag => self.boolean(path)?.map(|b| w.set(key, b)),
        };
        Ok(())
    }

    /// Writes derived values, and rejects unsupported options.
    fn write_derived(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        if self.is_bidirectional() && !arch::find(arch)?.encoder {
            bail!(
                Unsupported,
                "unsupported {BIDIRECTIONAL}: {}",
                self.find(BIDIRECTIONAL).unwrap_or(&Value::Null)
            );
        }
        for (name, is_supported) in FIXED {
            let optional = self.hf_model.rule == Some(ConfigRule::OptionalRope);
            if optional && *name == "position_embedding_type" {
                continue;
            }
            if let Some(value) = self.find(name).filter(|value| !is_supported(value)) {
                bail!(Unsupported, "unsupported {name}: {value}");
            }
        }
        if let Some(path) = self.first(CONTEXT)
            && let Some(rows) = self.integer(path)?
        {
            let offset = self.position_offset()?;
            let Some(positions) = rows.checked_sub(offset) else {
                bail!(
                    Format,
                    "{path}: {rows} rows, but position 0 is at row {offset}"
                );
            };
            w.set(&format!("{arch}.context_length"), positions);
        }
        if let Some(scalar) = self.float("query_pre_attn_scalar")? {
            if scalar.is_nan() || scalar <= 0.0 {
                bail!(
                    Format,
                    "query_pre_attn_scalar: expected a positive number, got {scalar}"
                );
            }
            w.set(&format!("{arch}.attention.scale"), scalar.powf(-0.5));
        }
        Ok(())
    }

    /// Returns the head dimension.
    pub(super) fn head_dim(&self) -> Result<Option<u32>> {
        let (dim, heads) = (
            self.integer("hidden_size")?,
            self.integer("num_attention_heads")?,
        );
        let even = dim
            .zip(heads)
            .and_then(|(dim, heads)| dim.checked_div(heads));
        Ok(self.integer("head_dim")?.or(even))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Metadata, open_bytes};
    use serde_json::json;

    fn config(value: &Value) -> HfConfig {
        HfConfig::parse(&value.to_string()).unwrap()
    }

    fn metadata(value: &Value) -> Result<Metadata> {
        let mut w = Writer::new();
        config(value).write("test", &mut w)?;
        Ok(open_bytes("test", w.finish()?)?.metadata)
    }

    /// Returns the validated hyperparameters.
    fn numbers(value: &Value) -> Result<arch::Config> {
        let config = arch::Config::read(&metadata(value)?)?;
        let arch = arch::find(&config.architecture)?;
        config.validate(arch)
    }

    /// Returns a configuration in the format of `transformers` 4, with changes.
    fn small(changes: Value) -> Value {
        let mut all = json!({
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
            "vocab_size": 288, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "head_dim": null, "rope_scaling": null,
        });
        let Value::Object(changes) = changes else {
            panic!("expected an object");
        };
        all.as_object_mut().unwrap().extend(changes);
        all
    }

    fn assert_rejected(changes: Value, part: &str) {
        let e = numbers(&small(changes)).expect_err(part);
        assert!(e.message().contains(part), "expected {part:?} in: {e}");
    }

    #[test]
    fn reads_hyperparameters_of_old_and_new_files() {
        let c = numbers(&small(json!({}))).unwrap();
        let a = &c.attention;
        assert_eq!((c.layers, c.dim, a.heads, a.kv_heads), (4, 64, 4, 2));
        assert_eq!((a.head_dim, c.ffn.width, c.vocab), (16, 96, 288));
        assert_eq!((c.context, c.rope.rotations[0].theta), (8192, 1e4));
        let wide = numbers(&small(json!({ "head_dim": 32, "model_type": "qwen3" }))).unwrap();
        assert_eq!(wide.architecture, "qwen3");
        assert_eq!(wide.attention.head_dim, 32);
        let other = numbers(&small(json!({ "model_type": "mistral" }))).unwrap();
        assert_eq!(other.architecture, "llama");
        let floats = json!({ "max_position_embeddings": 4096.0, "rope_theta": 500_000 });
        let floats = numbers(&small(floats)).unwrap();
        assert_eq!(floats.context, 4096);
        assert_eq!(floats.rope.rotations[0].theta, 5e5);
    }

    #[test]
    fn reads_all_spellings_of_rope_scaling() {
        let llama3 = json!({ "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32, "rope_type": "llama3" });
        let old = numbers(&small(json!({ "rope_scaling": llama3 }))).unwrap();
        let mut parameters = llama3.clone();
        parameters["rope_theta"] = json!(10000.0);
        let new = json!({ "rope_theta": null, "rope_parameters": parameters });
        assert_eq!(numbers(&small(new)).unwrap(), old);
        let expected = arch::RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 32.0,
        };
        assert_eq!(old.rope.rotations[0].scaling, expected);
        let linear = json!({ "rope_scaling": { "type": "linear", "factor": 4 } });
        let linear = numbers(&small(linear)).unwrap().rope.rotations;
        assert_eq!(linear[0].scaling, arch::RopeScaling::Linear { factor: 4.0 });
        let none = json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 7e5 }, "rope_theta": null });
        let none = numbers(&small(none)).unwrap().rope.rotations[0].clone();
        assert_eq!((none.scaling, none.theta), (arch::RopeScaling::None, 7e5));
        assert_rejected(
            json!({ "rope_scaling": { "type": "newest", "factor": 4.0 } }),
            "newest",
        );
        assert_rejected(
            json!({ "rope_scaling": { "rope_type": "llama3" } }),
            "rope_scaling.rope_type: \"llama3\" requires a factor",
        );
        assert_rejected(
            json!({ "rope_parameters": 4 }),
            "rope_parameters: expected an object, got 4",
        );
        let share = |model: &str| {
            let part = json!({ "partial_rotary_factor": 0.5, "model_type": model });
            numbers(&small(part)).unwrap().rope.rotations[0].dim
        };
        assert_eq!([share("phi3"), share("llama")], [8, 16]);
    }

    #[test]
    fn reads_the_factor_of_queries() {
        let whole = json!({ "model_type": "ministral3", "num_hidden_layers": 4 });
        let c = numbers(&whole).unwrap();
        let scale = c.attention.query_scale.unwrap();
        assert_eq!((scale.beta, scale.length), (0.1, 16384));
        assert_eq!(c.attention.head_dim, 128);
        assert_eq!(c.rope.rotations[0].magnitude(), 1.0);
        let rope = json!({ "rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
            "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.3 });
        let changes = json!({ "model_type": "ministral3", "rope_scaling": rope });
        let c = numbers(&small(changes)).unwrap();
        let scale = c.attention.query_scale.unwrap();
        assert_eq!((scale.beta, scale.length), (0.3, 32));
        let magnitude = 0.1 * 4f32.ln() + 1.0;
        assert!((c.rope.rotations[0].magnitude() - magnitude).abs() < 1e-6);
        let plain = json!({ "model_type": "mistral3", "text_config": small(json!({ "model_type": "mistral" })) });
        let c = numbers(&plain).unwrap();
        assert_eq!((c.attention.query_scale, c.attention.window), (None, 4096));
        let negative =
            json!({ "rope_scaling": { "rope_type": "default", "llama_4_scaling_beta": -0.1 } });
        assert_rejected(
            negative,
            "attention.temperature_scale: expected a positive number",
        );
    }

    #[test]
    fn reads_the_residual_streams_and_sparse_layers() {
        let streams = |changes: Value| {
            let mut all = json!({ "model_type": "gemma3n_text", "num_hidden_layers": 5,
                "num_kv_shared_layers": 0, "hidden_size": 64, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 288 });
            all.as_object_mut()
                .unwrap()
                .extend(changes.as_object().unwrap().clone());
            numbers(&all)
        };
        let c = streams(json!({})).unwrap();
        assert_eq!(c.layer_embeddings.rows, 262_144);
        assert_eq!(c.output.logit_cap, 30.0);
        assert_eq!((c.ffn.sparsity.len(), c.attention.window), (0, 512));
        let lists = json!({ "intermediate_size": [8, 8, 8, 16, 16], "vocab_size_per_layer_input": 288,
            "activation_sparsity_pattern": [0.5, 0.0, 0.95, 0.0, 0.0] });
        let c = streams(lists).unwrap();
        assert_eq!(
            c.layer_configs.iter().map(|l| l.ffn).collect::<Vec<_>>(),
            [8, 8, 8, 16, 16]
        );
        assert_eq!(c.ffn.sparsity[..3], [0.0, f32::NEG_INFINITY, 1.644_853_6]);
        assert_eq!(c.layer_embeddings.rows, 0);
        let full = streams(json!({ "layer_types": vec!["full_attention"; 5] })).unwrap();
        assert!(full.layer_configs.iter().all(|layer| layer.window == 0));
        let deep = streams(json!({ "num_hidden_layers": 12 })).unwrap();
        assert_eq!(
            deep.ffn.sparsity[8..],
            [
                1.644_853_6,
                1.644_853_6,
                f32::NEG_INFINITY,
                f32::NEG_INFINITY
            ]
        );
        for (changes, part) in [
            (
                json!({ "activation_sparsity_pattern": [0.5] }),
                "expected 5 values, got 1",
            ),
            (
                json!({ "activation_sparsity_pattern": [1.0, 0.0, 0.0, 0.0, 0.0] }),
                "expected numbers from 0 to 1",
            ),
            (
                json!({ "intermediate_size": [8, "x", 8, 8, 8] }),
                "expected a list of numbers",
            ),
            (
                json!({ "altup_num_inputs": 2 }),
                "altup.num_inputs: expected 4, got 2",
            ),
            (
                json!({ "altup_active_idx": 1 }),
                "altup.active_idx: expected 0, got 1",
            ),
            (
                json!({ "altup_correct_scale": false }),
                "unsupported altup_correct_scale: false",
            ),
        ] {
            let e = streams(changes).expect_err(part);
            assert!(e.message().contains(part), "expected {part:?} in: {e}");
        }
    }

    #[test]
    fn reads_a_nested_language_model() {
        let mut inner = small(json!({ "vocab_size": null }));
        inner["model_type"] = json!("qwen2");
        let outer = json!({ "model_type": "sees", "text_config": inner, "vocab_size": 300,
            "eos_token_id": [7, 9], "tie_word_embeddings": true });
        let c = numbers(&outer).unwrap();
        assert_eq!((c.architecture.as_str(), c.vocab), ("qwen2", 300));
        assert_eq!(config(&outer).tied().unwrap(), Some(true));
        assert_eq!(config(&outer).eos_tokens().unwrap(), [7, 9]);
    }

    #[test]
    fn reads_sliding_windows() {
        let windows = |changes: Value| {
            let meta = metadata(&small(changes)).unwrap();
            let window = meta.u32("llama.attention.sliding_window").unwrap()?;
            let pattern = meta.bools("llama.attention.sliding_window_pattern");
            Some((window, pattern.unwrap().unwrap()))
        };
        let (full, sliding) = ("full_attention", "sliding_attention");
        for (changes, expected) in [
            (json!({ "sliding_window": null }), None),
            (json!({ "sliding_window": 9 }), Some((9, vec![true; 4]))),
            (
                json!({ "sliding_window": 9, "use_sliding_window": false }),
                None,
            ),
            (
                json!({ "sliding_window": 9, "sliding_window_pattern": 3 }),
                Some((9, vec![true, true, false, true])),
            ),
            (
                json!({ "sliding_window": 9, "layer_types": [sliding, full, full, sliding] }),
                Some((9, vec![true, false, false, true])),
            ),
            (
                json!({ "sliding_window": 9, "use_sliding_window": true, "max_window_layers": 3 }),
                Some((9, vec![false, false, false, true])),
            ),
            (
                json!({ "sliding_window": 9, "layer_types": [full, full, full, full] }),
                None,
            ),
        ] {
            assert_eq!(windows(changes.clone()), expected, "{changes}");
        }
        let c = numbers(&small(json!({ "sliding_window": 512 }))).unwrap();
        assert_eq!((c.attention.window, c.context), (512, 8192));
        assert_rejected(json!({ "layer_types": [full] }), "expected 4 types, got 1");
        let other = json!([full, "chunked_attention", "x", "y"]);
        assert_rejected(
            json!({ "layer_types": other }),
            "unsupported layer type \"chunked_attention\"",
        );
    }

    #[test]
    fn reads_one_or_several_eos_tokens() {
        let ends = |changes: Value| config(&small(changes)).eos_tokens();
        assert!(ends(json!({})).unwrap().is_empty());
        assert!(ends(json!({ "eos_token_id": null })).unwrap().is_empty());
        assert_eq!(ends(json!({ "eos_token_id": 2 })).unwrap(), [2]);
        assert_eq!(ends(json!({ "eos_token_id": [2, 5] })).unwrap(), [2, 5]);
        for bad in [json!(-1), json!("</s>"), json!([2, "x"]), json!(1.5)] {
            let e = ends(json!({ "eos_token_id": bad })).unwrap_err();
            assert!(e.message().contains("eos_token_id"), "{e}");
        }
    }

    #[test]
    fn names_an_unsupported_architecture() {
        let strange = json!({ "model_type": "newest", "hidden_size": "huge", "layer_types": 3 });
        let meta = metadata(&strange).unwrap();
        let name = arch::Config::read(&meta).unwrap().architecture;
        let e = arch::find(&name).unwrap_err();
        let expected = "unsupported architecture \"newest\"; supported are llama";
        assert!(e.message().starts_with(expected), "{e}");
        let class = json!({ "architectures": ["NewestForCausalLM"] });
        let meta = metadata(&class).unwrap();
        let name = meta.str("general.architecture").unwrap();
        assert_eq!(name, Some("NewestForCausalLM"));
    }

    #[test]
    fn rejects_invalid_values() {
        let size = "hidden_size: expected an integer from 0 to 4294967295, got -1";
        assert_rejected(json!({ "hidden_size": -1 }), size);
        assert_rejected(json!({ "hidden_size": 1e300 }), "got 1e+300");
        assert_rejected(json!({ "hidden_size": 64.5 }), "got 64.5");
        assert_rejected(json!({ "hidden_size": "64" }), "got \"64\"");
        assert_rejected(json!({ "rope_theta": "x".repeat(500) }), "xxx...");
        assert_rejected(json!({ "rope_theta": 1e300 }), "rope_theta");
        assert_rejected(json!({ "hidden_act": 3 }), "hidden_act: expected a string");
        assert_rejected(json!({ "hidden_act": "newest" }), "newest");
        assert_rejected(json!({ "model_type": null }), "model_type is missing");
        assert_rejected(
            json!({ "num_hidden_layers": 4_000_000_000u32 }),
            "over the limit",
        );
        assert_rejected(
            json!({ "num_local_experts": 8 }),
            "expert_used_count: expected 1 to 8, got 0",
        );
        let bidirectional = json!({ "use_bidirectional_attention": true });
        assert_rejected(bidirectional, "use_bidirectional_attention: true");
        let relative = json!({ "position_embedding_type": "relative_key" });
        assert_rejected(relative, "position_embedding_type: \"relative_key\"");
        assert_rejected(json!({ "clip_qkv": 8.0 }), "unsupported clip_qkv: 8.0");
        assert_rejected(json!({ "hidden_size": null }), "missing or 0");
        for text in ["", "[]", "3", "{\"a\":", "\u{feff}{}"] {
            HfConfig::parse(text).unwrap_err();
        }
        let deep = "[".repeat(100_000);
        HfConfig::parse(&format!("{{\"a\":{deep}")).unwrap_err();
    }
}
