//! Invalid values of `config.json`.

use super::{checkpoints, load};
use crate::temp_folder::Folder;
use serde_json::{Value, json};
use std::collections::HashSet;
use tabla::Error;

/// Invalid values of `config.json`, and parts of the error message if it does not name the key, of which
/// it has one.
fn changes() -> Vec<(&'static str, Value, &'static str)> {
    let newest = json!({ "rope_type": "newest", "factor": 2.0 });
    vec![
        ("num_hidden_layers", json!(5_000_000), "4096"),
        ("num_hidden_layers", json!("2"), ""),
        ("hidden_size", json!(-1), ""),
        ("num_attention_heads", json!(1.5), ""),
        ("num_key_value_heads", json!(u32::MAX), "head_count_kv"),
        ("intermediate_size", json!(0), "feed_forward_length"),
        ("hidden_act", json!("newest"), "hidden_activation"),
        ("hidden_act", json!(3), ""),
        ("hidden_activation", json!("newest"), ""),
        ("activation_function", json!("newest"), "hidden_activation"),
        ("rms_norm_eps", json!(0.0), "layer_norm_rms_epsilon"),
        ("layer_norm_epsilon", json!("small"), ""),
        ("rope_theta", json!(-1.0), "rope.freq_base"),
        ("rope_scaling", newest.clone(), "rope.scaling.type"),
        ("rope_parameters", newest, "rope.scaling.type"),
        ("layer_types", json!(["full_attention"]), ""),
        ("sliding_window", json!(-5), ""),
        ("num_experts_per_tok", json!(10), "expert_used_count"),
        ("top_k_experts", json!(10), "expert_used_count"),
        ("num_experts", json!(10), "is missing|expected shape [10, "),
        (
            "num_local_experts",
            json!(10),
            "experts.8.|expected shape [10, |expert_used_count: expected 1 to 10, got 0",
        ),
        ("enable_moe_block", json!(3), ""),
        (
            "mlp_only_layers",
            json!([0]),
            "layers.0.mlp.gate_proj.weight",
        ),
        ("decoder_sparse_step", json!(0), ""),
        ("num_kv_shared_layers", json!(5), "shared_kv_layers"),
        ("kv_lora_rank", json!(0), "attention.kv_lora_rank"),
        ("vocab_size", json!(4096), "vocabulary size of 4096"),
        ("model_type", json!("newest"), "architecture \"newest\""),
    ]
}

/// Returns whether an error has one of the parts, which are separated by `|`.
fn has_part(e: &Error, parts: &str) -> bool {
    let message = e.to_string();
    parts.split('|').any(|part| message.contains(part))
}

/// Keys that are not used, because another key overrides them or the model has no dense layers.
const UNREAD: [(&str, &str); 23] = [
    ("bitnet/hf", "model_type"),
    ("bitnet_master/hf", "model_type"),
    ("gemma2/hf", "hidden_act"),
    ("qwen3moe/hf", "intermediate_size"),
    ("qwen2_moe/hf", "intermediate_size"),
    ("gemma4_moe/hf", "intermediate_size"),
    ("qwen3_next/hf", "intermediate_size"),
    ("deepseek_v2/hf", "intermediate_size"),
    ("deepseek_v2_lite/hf", "intermediate_size"),
    ("deepseek_v3/hf", "intermediate_size"),
    ("glm4_moe_lite/hf", "intermediate_size"),
    ("deepseek_v2/hf", "num_key_value_heads"),
    ("deepseek_v2_lite/hf", "num_key_value_heads"),
    ("deepseek_v3/hf", "num_key_value_heads"),
    ("glm4_moe_lite/hf", "num_key_value_heads"),
    ("granite_hybrid/hf", "intermediate_size"),
    ("granite_hybrid/hf", "num_experts_per_tok"),
    ("granite_hybrid_attention/hf", "intermediate_size"),
    ("granite_hybrid_attention/hf", "num_experts_per_tok"),
    ("lfm2_moe/hf", "intermediate_size"),
    ("nemotron_h_mixed/hf", "intermediate_size"),
    ("nemotron_h_moe/hf", "intermediate_size"),
    ("nemotron_h_latent/hf", "intermediate_size"),
];

#[test]
fn names_configuration_keys_with_invalid_values() {
    let mut failures = Vec::new();
    let mut seen = HashSet::new();
    for path in checkpoints().iter().filter(|path| path.is_dir()) {
        let scratch = Folder::new("errors");
        scratch.copy(path);
        let text = std::fs::read_to_string(path.join("config.json")).expect("a file");
        // Not JSON, but in files of `transformers`.
        let text = text.replace(" Infinity", " 1e30");
        let config: Value = serde_json::from_str(&text).expect("JSON");
        for (key, value, other) in changes() {
            let mut changed = config.clone();
            let nested = config.get("text_config").is_some();
            let inner = if nested {
                &mut changed["text_config"]
            } else {
                &mut changed
            };
            let mut unread = UNREAD.iter();
            // Lists of layers replace their number.
            let listed = key == "num_hidden_layers"
                && ["layers_block_type", "hybrid_override_pattern"]
                    .iter()
                    .any(|list| inner.get(list).is_some());
            if listed
                || inner.get(key).is_none_or(Value::is_null)
                || unread.any(|(folder, unread)| path.ends_with(folder) && *unread == key)
            {
                continue;
            }
            seen.insert(key);
            inner[key] = value.clone();
            scratch.write("config.json", changed.to_string().as_bytes());
            let label = format!("{}, {key}: {value}", path.display());
            match load(&scratch.0) {
                Err(e) if e.to_string().contains(&format!("{key}: ")) => {}
                Err(e) if !other.is_empty() && has_part(&e, other) => {}
                Err(e) => failures.push(format!("{label}: {e}")),
                Ok(()) => failures.push(format!("{label}: loads without an error")),
            }
        }
    }
    let all: HashSet<_> = changes().into_iter().map(|(key, ..)| key).collect();
    assert_eq!(seen, all, "a file has each key");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
