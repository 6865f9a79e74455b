//! Groups of declarations in `include/tabla.h`, in the order in which a program needs them.

use crate::tree::Result;

/// Every group: its heading, and the beginnings of the names that it declares, in order. The longest
/// beginning that matches a name selects its group and its place.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Status codes and handles",
        &[
            "TABLA_OK",
            "TablaStatus",
            "TablaError",
            "TablaModel",
            "TablaSession",
            "TablaBatch",
            "TablaGrammar",
            "TablaParser",
            "TablaTranscription",
            "TablaHooks",
            "TablaAdapter",
            "TablaControlVector",
        ],
    ),
    (
        "Load a model",
        &[
            "TABLA_DEVICE_",
            "TABLA_PRECISION_",
            "TABLA_WEIGHTS_",
            "TABLA_LOAD_",
            "TABLA_LM_HEAD_",
            "TABLA_CACHE_",
            "TABLA_PREFIX_",
            "TABLA_CPU_EXPERTS_",
            "TablaProgressCallback",
            "TablaLoadOptions",
            "tabla_load_model",
            "tabla_model_load",
            "TablaRelease",
            "tabla_load_memory",
            "tabla_free_model",
        ],
    ),
    (
        "Facts about the library, the devices and a model",
        &[
            "TABLA_ABI_VERSION",
            "tabla_abi_version",
            "tabla_version",
            "tabla_device_",
            "tabla_catch_file_faults",
            "TablaModelInfo",
            "tabla_model_info",
            "tabla_model_digest",
            "TABLA_TABLE_",
            "tabla_model_table",
        ],
    ),
    (
        "Tokenize",
        &[
            "TABLA_NO_TOKEN",
            "TABLA_TOKENIZE_",
            "tabla_model_tokenize",
            "tabla_model_detokenize",
            "tabla_model_token_bytes",
            "tabla_model_stop_token_ids",
        ],
    ),
    (
        "Generate with the default session of a model",
        &[
            "TABLA_SPECULATE_",
            "TablaLogitBias",
            "TablaGenerateOptions",
            "tabla_generate_options_init",
            "TABLA_FINISH_",
            "TablaStats",
            "TablaTokenCallback",
            "tabla_generate",
            "tabla_prefill",
        ],
    ),
    (
        "Sessions",
        &[
            "tabla_model_session",
            "tabla_session_new",
            "tabla_session_fork",
            "tabla_session_move",
            "tabla_session_save",
            "tabla_session_load",
            "tabla_session_free",
            "tabla_session_tokens",
            "tabla_session_truncate",
            "tabla_session_prefill",
            "tabla_session_step",
            "TABLA_LOGITS_",
            "tabla_session_logits",
            "tabla_session_generate",
            "tabla_session_cancel",
            "TablaLogprob",
            "TablaPiece",
            "tabla_session_begin",
            "tabla_session_next",
            "tabla_session_end",
            "tabla_session_stats",
        ],
    ),
    (
        "Batches: answers to many prompts, read by one thread",
        &["tabla_batch_"],
    ),
    ("Grammars", &["TABLA_GRAMMAR_", "tabla_grammar_"]),
    (
        "Chats",
        &[
            "TablaChatOptions",
            "tabla_model_apply_chat_template",
            "tabla_model_tokenize_chat",
            "tabla_session_chat",
            "tabla_session_begin_chat",
            "tabla_grammar_new_tool_call",
            "tabla_parser_",
        ],
    ),
    (
        "Embeddings, reranking and classification",
        &[
            "TABLA_POOLING_",
            "TablaEmbedOptions",
            "tabla_embed",
            "tabla_session_embed",
            "tabla_session_rerank",
            "TablaClassifyOptions",
            "tabla_session_classify",
            "tabla_model_label",
        ],
    ),
    ("Scores", &["tabla_session_score"]),
    (
        "Hooks: captured and changed values of the forward pass",
        &[
            "TABLA_POSITIONS_",
            "TABLA_EDIT_",
            "TablaEdit",
            "tabla_adapter_load",
            "tabla_adapter_free",
            "tabla_control_vector_",
            "TablaSteer",
            "TablaHookOptions",
            "tabla_hook_options_init",
            "TablaCapturedPoint",
            "tabla_hooks_new",
            "tabla_hooks_point",
            "tabla_session_set_hooks",
            "tabla_session_set_adapter_scales",
            "tabla_session_captured",
            "tabla_session_capture",
            "tabla_hooks_lens",
            "tabla_hooks_free",
        ],
    ),
    (
        "Transcription of speech",
        &[
            "TABLA_TASK_",
            "TablaTranscribeOptions",
            "tabla_transcribe_options_init",
            "TablaWord",
            "TablaSegment",
            "TablaSegmentCallback",
            "tabla_transcribe",
            "tabla_transcription_new",
            "tabla_transcription_open",
            "tabla_transcription_push",
            "tabla_transcription_finish",
            "tabla_transcription_next",
            "TablaTranscriptionInfo",
            "tabla_transcription_info",
            "tabla_transcription_write",
            "tabla_transcription_cancel",
            "tabla_transcription_free",
        ],
    ),
    (
        "Log messages and errors",
        &[
            "TABLA_LOG_",
            "TablaLogCallback",
            "tabla_log_",
            "tabla_last_error",
            "tabla_status_name",
        ],
    ),
];

/// Sorts the declarations of a header by group, and writes the heading of each group.
///
/// # Errors
///
/// If a name belongs to no group, or a beginning matches no name.
pub(crate) fn grouped(header: &str) -> Result<String> {
    let blocks = header.split("\n\n").map(|block| block.trim_matches('\n'));
    let (declarations, others): (Vec<_>, Vec<_>) =
        blocks.partition(|block| declared_name(block).is_some());
    let mut places: Vec<Vec<Vec<&str>>> = GROUPS
        .iter()
        .map(|(_, starts)| vec![Vec::new(); starts.len()])
        .collect();
    for block in declarations {
        let name = declared_name(block).unwrap_or_default();
        let (group, place) =
            place_of(name).ok_or_else(|| format!("{name} is in no group of header_groups.rs"))?;
        places[group][place].push(block);
    }
    // The last two blocks close `extern "C"` and the include guard.
    let (before, after) = others.split_at(others.len().saturating_sub(2));
    let mut out: Vec<String> = before.iter().map(ToString::to_string).collect();
    for ((heading, starts), places) in GROUPS.iter().zip(places) {
        out.push(format!("/* ===== {heading} ===== */"));
        for (start, blocks) in starts.iter().zip(places) {
            if blocks.is_empty() {
                return Err(format!("header_groups.rs: no name starts with {start}").into());
            }
            out.extend(blocks.into_iter().map(str::to_string));
        }
    }
    out.extend(after.iter().map(ToString::to_string));
    Ok(out.join("\n\n") + "\n")
}

/// Index of the group of a name, and of its place in the group.
fn place_of(name: &str) -> Option<(usize, usize)> {
    let places = GROUPS.iter().enumerate().flat_map(|(group, (_, starts))| {
        let starts = starts.iter().enumerate();
        starts.map(move |(place, start)| (start, (group, place)))
    });
    places
        .filter(|(start, _)| name.starts_with(**start))
        .max_by_key(|(start, _)| start.len())
        .map(|(_, at)| at)
}

/// Name that a block declares: a constant, a type or a function. `None` for comments and for
/// directives of the preprocessor.
fn declared_name(block: &str) -> Option<&str> {
    let code = match block.starts_with("/*") {
        true => block.split_once("*/")?.1,
        false => block,
    };
    let code = code.trim_start();
    if code.starts_with('#') && !code.starts_with("#define") {
        return None;
    }
    // Comments of fields contain other names.
    let code = code.split(['{', ';']).next()?;
    let words = || code.split(|c: char| !c.is_alphanumeric() && c != '_');
    // The type of a function comes before its name.
    let function = words().find(|word| word.starts_with("tabla_"));
    function
        .or_else(|| words().find(|word| word.starts_with("Tabla") || word.starts_with("TABLA_")))
}

#[cfg(test)]
mod tests {
    use super::{declared_name, place_of};

    #[test]
    fn names_of_all_kinds_are_found() {
        for (block, name) in [
            ("/** Off. */\n#define TABLA_LOG_OFF (0)", "TABLA_LOG_OFF"),
            (
                "/** A. */\ntypedef struct TablaBatch TablaBatch;",
                "TablaBatch",
            ),
            (
                "/** A. */\ntypedef void (*TablaLogCallback)(int32_t level);",
                "TablaLogCallback",
            ),
            (
                "/** A. */\nstruct TablaModel *tabla_load_model(const char *path);",
                "tabla_load_model",
            ),
        ] {
            assert_eq!(declared_name(block), Some(name));
        }
        for block in ["/* text */", "#ifndef TABLA_H\n#define TABLA_H", "#endif"] {
            assert_eq!(declared_name(block), None);
        }
    }

    #[test]
    fn longest_beginning_selects_the_place() {
        assert!(place_of("TablaModel") < place_of("TablaModelInfo"));
        assert!(place_of("tabla_session_begin") < place_of("tabla_session_begin_chat"));
        assert_eq!(place_of("tabla_unknown"), None);
    }
}
