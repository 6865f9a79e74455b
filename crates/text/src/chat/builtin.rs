//! Built-in templates for models without one, selected by name or by the special tokens of the
//! vocabulary.

use crate::Tokenizer;

/// Names and sources of the built-in templates. The names are those of llama.cpp.
pub const BUILTIN_TEMPLATES: &[(&str, &str)] = &[
    ("alpaca", include_str!("templates/alpaca.jinja")),
    ("bitnet", include_str!("templates/bitnet.jinja")),
    ("chatml", include_str!("templates/chatml.jinja")),
    ("command-r", include_str!("templates/command-r.jinja")),
    ("deepseek3", include_str!("templates/deepseek3.jinja")),
    ("falcon3", include_str!("templates/falcon3.jinja")),
    ("gemma", include_str!("templates/gemma.jinja")),
    ("gpt-oss", include_str!("templates/gpt-oss.jinja")),
    ("granite", include_str!("templates/granite.jinja")),
    ("llama2", include_str!("templates/llama2.jinja")),
    ("llama3", include_str!("templates/llama3.jinja")),
    ("mistral-v1", include_str!("templates/mistral-v1.jinja")),
    ("mistral-v3", include_str!("templates/mistral-v3.jinja")),
    (
        "mistral-v3-tekken",
        include_str!("templates/mistral-v3-tekken.jinja"),
    ),
    ("mistral-v7", include_str!("templates/mistral-v7.jinja")),
    (
        "mistral-v7-tekken",
        include_str!("templates/mistral-v7-tekken.jinja"),
    ),
    ("olmo2", include_str!("templates/olmo2.jinja")),
    ("phi3", include_str!("templates/phi3.jinja")),
    ("phi4", include_str!("templates/phi4.jinja")),
    ("vicuna", include_str!("templates/vicuna.jinja")),
    ("zephyr", include_str!("templates/zephyr.jinja")),
];

/// Special tokens that identify a template. The first row with all tokens present wins.
const DETECTION: &[(&[&str], &str)] = &[
    (&["<|im_start|>", "<|im_sep|>", "<|im_end|>"], "phi4"),
    (&["<|im_start|>", "<|im_end|>"], "chatml"),
    (
        &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "llama3",
    ),
    (&["<|start|>", "<|channel|>", "<|message|>"], "gpt-oss"),
    (&["<start_of_turn>", "<end_of_turn>"], "gemma"),
    (&["<|start_of_role|>", "<|end_of_role|>"], "granite"),
    (
        &["<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"],
        "command-r",
    ),
    (&["<｜User｜>", "<｜Assistant｜>"], "deepseek3"),
    (&["<|user|>", "<|assistant|>", "<|end|>"], "phi3"),
];

/// Detects the template of a vocabulary by its special tokens. Returns its name.
pub(super) fn detect(tokenizer: &Tokenizer) -> Option<&'static str> {
    let has = |token: &&str| tokenizer.special_id(token).is_some();
    let mut rows = DETECTION.iter();
    rows.find(|(tokens, _)| tokens.iter().all(has))
        .map(|(_, name)| *name)
}

/// Returns the source of a built-in template.
pub(super) fn source(name: &str) -> Option<&'static str> {
    let mut rows = BUILTIN_TEMPLATES.iter();
    rows.find(|row| row.0 == name).map(|row| row.1)
}
