//! Tests of adapters of `peft`: names, patterns and errors.

use super::{
    DIM, FFN, Q_A, Q_B, RowOrder, Tensor, UP_A, UP_B, assert_fails, config, counted, matrices,
    peft_modules,
};
use crate::adapter::peft_config::PeftConfig;
use crate::error::ErrorKind;
use serde_json::{Value, json};
use tabla_testkit::fixed_json;

#[test]
fn peft_modules_have_gguf_names_and_scaled_matrices() {
    let tensors = [
        matrices(UP_A, UP_B, 2, [FFN, DIM]),
        matrices(Q_A, Q_B, 2, [DIM, DIM]),
    ]
    .concat();
    let modules = peft_modules("llama", RowOrder::Halves, &json!({}), &tensors).unwrap();
    let names: Vec<_> = modules.iter().map(|m| m.tensor.as_str()).collect();
    assert_eq!(names, ["blk.1.ffn_up", "blk.0.attn_q"]);
    let up = &modules[0];
    assert_eq!((up.rank, up.inputs, up.outputs), (2, 8, 6));
    assert_eq!(up.a, [1.0; 16]);
    let doubled: Vec<f32> = (0..12).map(|n| 2.0 * n as f32).collect();
    assert_eq!(up.b, doubled);
    let rslora = fixed_json!({ "use_rslora": true });
    let modules = peft_modules("llama", RowOrder::Halves, &rslora, &tensors).unwrap();
    assert_eq!(modules[0].b[1], 4.0 / 2.0f32.sqrt());
}

#[test]
fn patterns_match_ends_of_names_in_file_order() {
    let tensors = [
        matrices(UP_A, UP_B, 3, [FFN, DIM]),
        matrices(Q_A, Q_B, 2, [DIM, DIM]),
    ]
    .concat();
    let scales = |changes: &Value| {
        let modules = peft_modules("llama", RowOrder::Halves, changes, &tensors).unwrap();
        modules.iter().map(|m| m.b[1]).collect::<Vec<_>>()
    };
    let ranks = fixed_json!({ "up_proj": 3, "proj": 7, "model.layers.1.mlp.up": 9 });
    for (alphas, expected) in [
        (json!({}), [4.0 / 3.0, 2.0]),
        (fixed_json!({ "up_proj": 6 }), [2.0, 2.0]),
        (
            json!({ r"layers\.\d\.mlp\..*": 6, "up_proj": 9 }),
            [2.0, 2.0],
        ),
        (
            json!({ "up_proj": 9, r"layers\.\d\.mlp\..*": 6 }),
            [3.0, 2.0],
        ),
        (
            fixed_json!({ "^model.layers.0.self_attn.q_proj": 1.5 }),
            [4.0 / 3.0, 0.75],
        ),
        (fixed_json!({ "(q|up)_proj": 6 }), [2.0, 3.0]),
        (fixed_json!({ "p_proj": 6, "q": 5 }), [4.0 / 3.0, 2.0]),
    ] {
        let actual = scales(&json!({ "rank_pattern": ranks, "alpha_pattern": alphas }));
        assert_eq!(actual, expected, "{alphas}");
    }
}

#[test]
fn rejects_other_methods_than_lora() {
    for (changes, part) in [
        (fixed_json!({ "peft_type": "IA3" }), "peft_type is \"IA3\""),
        (fixed_json!({ "peft_type": null }), "peft_type is null"),
        (fixed_json!({ "use_dora": true }), "use_dora is true: DoRA"),
        (fixed_json!({ "bias": "all" }), "bias is \"all\""),
        (fixed_json!({ "lora_bias": true }), "lora_bias is true"),
        (
            fixed_json!({ "modules_to_save": ["score"] }),
            "modules_to_save",
        ),
        (
            fixed_json!({ "trainable_token_indices": [1] }),
            "trainable_token_",
        ),
        (
            fixed_json!({ "layer_replication": [[0, 1]] }),
            "layer_replication",
        ),
        (
            fixed_json!({ "target_parameters": ["w"] }),
            "target_parameters",
        ),
        (
            fixed_json!({ "init_lora_weights": "pissa" }),
            "init_lora_weights",
        ),
        (
            fixed_json!({ "alpha_pattern": { "(": 1 } }),
            "alpha_pattern: \"(\"",
        ),
    ] {
        let parsed = PeftConfig::parse(&config(&changes).to_string());
        assert_fails(parsed, ErrorKind::Unsupported, &[part]);
    }
    for changes in [
        fixed_json!({ "modules_to_save": [], "use_dora": false, "layer_replication": null }),
        fixed_json!({ "init_lora_weights": "gaussian", "bias": null }),
        fixed_json!({ "init_lora_weights": true, "rank_pattern": null, "loftq_config": {} }),
    ] {
        PeftConfig::parse(&config(&changes).to_string()).unwrap();
    }
}

#[test]
fn rejects_invalid_configurations() {
    for (changes, part) in [
        (
            json!({ "r": 0 }),
            "r: rank 0, expected an integer from 1 to 4096",
        ),
        (fixed_json!({ "r": 5000 }), "rank 5000"),
        (fixed_json!({ "lora_alpha": "8" }), "lora_alpha: \"8\""),
        (fixed_json!({ "use_rslora": 1 }), "use_rslora is 1"),
        (
            fixed_json!({ "rank_pattern": { "q": 1.5 } }),
            "rank_pattern: \"q\": rank 1.5",
        ),
        (
            fixed_json!({ "alpha_pattern": [1] }),
            "alpha_pattern is [1]",
        ),
    ] {
        let parsed = PeftConfig::parse(&config(&changes).to_string());
        assert_fails(parsed, ErrorKind::Format, &[part]);
    }
    assert_fails(PeftConfig::parse("{"), ErrorKind::Format, &["invalid JSON"]);
    let none = PeftConfig::parse("{}");
    assert_fails(none, ErrorKind::Format, &["peft_type is missing"]);
}

#[test]
fn rejects_tensors_of_peft_that_do_not_fit() {
    let check = |tensors: &[Tensor<'_>], kind, parts: &[&str]| {
        let read = peft_modules("qwen3moe", RowOrder::Halves, &json!({}), tensors);
        assert_fails(read, kind, parts);
    };
    let one = |name: &'static str| [(name, [2, 8], vec![1.0; 16])];
    for (name, kind, part) in [
        (UP_A, ErrorKind::Format, "has no matrix B"),
        (UP_B, ErrorKind::Format, "has no matrix A"),
        (
            "base_model.model.lm_head.lora_embedding_A",
            ErrorKind::Unsupported,
            "LoRA of embeddings",
        ),
        (
            "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector.weight",
            ErrorKind::Unsupported,
            "DoRA",
        ),
        (
            "base_model.model.lm_head.modules_to_save.weight",
            ErrorKind::Unsupported,
            "modules that are stored whole",
        ),
        (
            "base_model.model.model.layers.0.mlp.up_proj.lora_B.bias",
            ErrorKind::Unsupported,
            "unexpected tensor",
        ),
        (
            "model.norm.weight",
            ErrorKind::Unsupported,
            "unexpected tensor model.norm.weight",
        ),
    ] {
        check(&one(name), kind, &[name, part]);
    }
}

#[test]
fn rejects_modules_of_peft_that_do_not_fit() {
    macro_rules! pair {
        ($module:literal, $shape:expr) => {
            matrices(
                concat!("base_model.model.", $module, ".lora_A.weight"),
                concat!("base_model.model.", $module, ".lora_B.weight"),
                2,
                $shape,
            )
        };
    }
    for (tensors, kind, part) in [
        (
            pair!("lm_head", [9, 8]),
            ErrorKind::Unsupported,
            "module lm_head: LoRA of embeddings",
        ),
        (
            pair!("model.embed_tokens", [8, 9]),
            ErrorKind::Unsupported,
            "module model.embed_tokens: LoRA of embeddings",
        ),
        (
            pair!("model.layers.0.mlp.experts.3.up_proj", [6, 8]),
            ErrorKind::Unsupported,
            "module model.layers.0.mlp.experts.3.up_proj: LoRA of experts",
        ),
        (
            pair!("model.layers.0.mlp.switch_mlp.up_proj", [6, 8]),
            ErrorKind::Unsupported,
            "LoRA of experts",
        ),
        (
            pair!("model.layers.0.mlp.side_proj", [6, 8]),
            ErrorKind::Argument,
            "module model.layers.0.mlp.side_proj is not part of the architecture \"qwen3moe\"",
        ),
        (
            pair!("model.layers.2.self_attn.q_proj", [8, 8]),
            ErrorKind::Argument,
            "layer 2 is out of range, the model has 2 layers",
        ),
        (
            pair!("model.layers.0.self_attn.q_proj", [16, 8]),
            ErrorKind::Argument,
            "expected 8 outputs and 8 inputs as of the model, got 16 and 8",
        ),
        (
            pair!("model.layers.0.self_attn.q_norm", [8, 8]),
            ErrorKind::Argument,
            "the model has no weight blk.0.attn_q_norm",
        ),
    ] {
        let read = peft_modules("qwen3moe", RowOrder::Halves, &json!({}), &tensors);
        assert_fails(read, kind, &[part]);
    }
}

#[test]
fn rejects_invalid_matrices() {
    let check = |tensors: &[Tensor<'_>], kind, part: &str| {
        let read = peft_modules("llama", RowOrder::Halves, &json!({}), tensors);
        assert_fails(read, kind, &[part]);
    };
    let [a, b] = matrices(Q_A, Q_B, 2, [DIM, DIM]);
    let other = (Q_B, [DIM, 3], counted([DIM, 3]));
    let part = "matrix A has rank 2, matrix B has rank 3";
    check(&[a.clone(), other], ErrorKind::Format, part);
    let part = "self_attn.q_proj: rank 3, expected 2 as in adapter_config.json";
    check(&matrices(Q_A, Q_B, 3, [DIM, DIM]), ErrorKind::Format, part);
    let same = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    let twice = [a.clone(), (same, a.1, a.2.clone()), b.clone()];
    check(&twice, ErrorKind::Format, "are both matrix A of module");
    let prefixed = matrices(
        "base_model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.layers.0.self_attn.q_proj.lora_B.weight",
        2,
        [DIM, DIM],
    );
    let both = [[a.clone(), b.clone()], prefixed].concat();
    check(
        &both,
        ErrorKind::Format,
        "another module maps to blk.0.attn_q",
    );
    for x in [f32::NAN, f32::INFINITY] {
        let mut broken = a.clone();
        broken.2[11] = x;
        let part = format!("row 1, column 3 is {x}, expected a finite value");
        check(&[broken, b.clone()], ErrorKind::Format, &part);
    }
    let mut large = b.clone();
    large.2[3] = 3e38;
    check(&[a, large], ErrorKind::Format, "exceed the range of f32");
}
