//! Selects the files of a model to download.

use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Default quantizations, in order of preference.
const PREFERRED: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// A quantization as a word of a file name.
static QUANTIZATION: LazyLock<Regex> = LazyLock::new(|| {
    let names = r"(?:UD-)?I?Q[1-8](?:_[0-9A-Z]{1,3})+|TQ[12]_0|I2_S|MXFP4(?:_MOE)?|BF16|F16|F32";
    let word = format!("(?i)(?:^|[^0-9A-Z])({names})(?:[^0-9A-Z_]|$)");
    Regex::new(&word).expect("a valid pattern")
});

/// Files that loading safetensors needs in addition to the weights.
const COMPANIONS: [&str; 9] = [
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer*.json",
    "tokenizer*.model",
    "chat_template.*",
];

/// Such files in folders: named chat templates, and modules of sentence-transformers.
const INNER_COMPANIONS: [&str; 4] = [
    "additional_chat_templates/*.jinja",
    "*_Pooling/config.json",
    "*_Dense/config.json",
    "*_Dense/model.safetensors",
];

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Maximum number of names in a message.
const NAMES_MAX: usize = 12;

/// The files to download and the one to open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) files: Vec<String>,
    /// The shard index; its shards are downloaded too.
    pub(super) index: Option<String>,
    /// The file to open; `None`: the folder.
    pub(super) open: Option<String>,
}

impl Selection {
    /// Selects one file or the parts of a split file.
    fn parts(files: Vec<String>) -> Self {
        let open = files.first().cloned();
        Self {
            files,
            index: None,
            open,
        }
    }
}

/// Selects files by file name or quantization, or the default ones. An error message continues a
/// sentence that starts with the name of the model or its folder.
pub(super) fn choose(names: &[String], file_or_quant: Option<&str>) -> Result<Selection, String> {
    if let Some(name) = file_or_quant.filter(|file| names.iter().any(|name| name == file)) {
        return Ok(Selection::parts(with_other_parts(name, names)?));
    }
    let ggufs: BTreeSet<String> = names.iter().filter_map(|name| first_part(name)).collect();
    // `mmproj` files are image projectors, not models.
    let models = || ggufs.iter().filter(|name| !name.contains("mmproj"));
    let of_quant = |quant: &str| models().find(|name| has_quant(name, quant));
    let name = match file_or_quant {
        Some(quant) => Some(of_quant(quant).ok_or_else(|| not_found(quant, &ggufs, names))?),
        None => PREFERRED.into_iter().find_map(of_quant).or(models().next()),
    };
    match name {
        Some(name) => Ok(Selection::parts(with_other_parts(name, names)?)),
        None => safetensors(names),
    }
}

/// Returns the complete models of a listing: for GGUF files with the quantization that selects the file,
/// otherwise its name.
pub(super) fn models(names: &[String]) -> Vec<(Option<String>, Selection)> {
    let files: BTreeSet<String> = names.iter().filter_map(|name| first_part(name)).collect();
    let files = files.iter().filter(|name| !name.contains("mmproj"));
    let ggufs: Vec<_> = files
        .filter_map(|file| {
            let selection = Selection::parts(with_other_parts(file, names).ok()?);
            let selects = |quant: &&str| {
                choose(names, Some(quant)).is_ok_and(|selected| selected == selection)
            };
            let label = quantization(file).filter(selects).unwrap_or(file);
            Some((Some(label.to_string()), selection))
        })
        .collect();
    if !ggufs.is_empty() {
        return ggufs;
    }
    let folder = safetensors(names).ok();
    folder
        .map(|selection| (None, selection))
        .into_iter()
        .collect()
}

/// Returns the quantization in the name of a file: `m-Q4_K_M.gguf` has `Q4_K_M`.
pub(crate) fn quantization(name: &str) -> Option<&str> {
    let found = QUANTIZATION.captures_iter(name).last()?;
    found.get(1).map(|found| found.as_str())
}

/// Returns the shards of an index, which must be in the listing. Otherwise the index is outdated, and the
/// shards are the only complete set of numbered files.
pub(super) fn shards(index: &str, names: &[String]) -> Result<BTreeSet<String>, String> {
    let listed = listed_shards(index, names);
    let sets: BTreeSet<_> = names
        .iter()
        .filter_map(|name| numbered_set(name, names))
        .collect();
    match (listed, sets.first()) {
        (Err(_), Some(set)) if sets.len() == 1 => Ok(set.clone()),
        (listed, _) => listed,
    }
}

/// Returns all files of a numbered set of safetensors files; `None` if one is not in the listing.
fn numbered_set(name: &str, names: &[String]) -> Option<BTreeSet<String>> {
    let (stem, count) = split(name, ".safetensors")?;
    // Before a count of the listing becomes a number of names.
    if count as usize > names.len() {
        return None;
    }
    let part = |part| format!("{stem}-{part:05}-of-{count:05}.safetensors");
    let set: BTreeSet<String> = (1..=count).map(part).collect();
    set.iter().all(|part| names.contains(part)).then_some(set)
}

/// Returns the shards that an index lists. Each must be in the listing.
fn listed_shards(index: &str, names: &[String]) -> Result<BTreeSet<String>, String> {
    let index: Value = serde_json::from_str(index.trim_start_matches('\u{feff}'))
        .map_err(|error| format!("{INDEX} is not valid JSON: {error}"))?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| format!("{INDEX} has no weight_map"))?;
    let mut shards = BTreeSet::new();
    for (tensor, shard) in map {
        let shard = shard
            .as_str()
            .ok_or_else(|| format!("{INDEX} has no file for {tensor}"))?;
        if !names.iter().any(|name| name == shard) {
            return Err(format!("{INDEX} lists {shard:?}, which does not exist"));
        }
        shards.insert(shard.to_string());
    }
    Ok(shards)
}

fn safetensors(names: &[String]) -> Result<Selection, String> {
    let has = |name: &str| names.iter().any(|n| n == name);
    let weights = [WEIGHTS, INDEX].into_iter().find(|name| has(name));
    let weights = weights.ok_or_else(|| {
        let files = list(names);
        format!("has neither GGUF files nor {WEIGHTS}; its files are {files}")
    })?;
    let matches = |name: &str, pattern: &str| match pattern.split_once('*') {
        Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
        None => name == pattern,
    };
    let is_companion = |name: &&String| {
        let patterns = match name.matches('/').count() {
            0 => &COMPANIONS[..],
            1 => &INNER_COMPANIONS,
            _ => &[],
        };
        patterns.iter().any(|pattern| matches(name, pattern))
    };
    let mut files: Vec<String> = names.iter().filter(is_companion).cloned().collect();
    files.push(weights.to_string());
    Ok(Selection {
        files,
        index: (weights == INDEX).then(|| INDEX.to_string()),
        open: None,
    })
}

/// Splits `NAME-00002-of-00007.gguf` into the name and the number of parts.
fn split<'a>(name: &'a str, extension: &str) -> Option<(&'a str, u32)> {
    let (rest, count) = name.strip_suffix(extension)?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (part, count) = (number(part)?, number(count)?);
    (1..=count).contains(&part).then_some((stem, count))
}

/// Returns the first part of a split GGUF file, or the name itself.
fn first_part(name: &str) -> Option<String> {
    match split(name, ".gguf") {
        Some((stem, count)) => Some(format!("{stem}-00001-of-{count:05}.gguf")),
        None => name.ends_with(".gguf").then(|| name.to_string()),
    }
}

/// Returns all parts of a split file in order, or the name itself.
fn with_other_parts(name: &str, names: &[String]) -> Result<Vec<String>, String> {
    let Some((stem, count)) = split(name, ".gguf") else {
        return Ok(vec![name.to_string()]);
    };
    let parts = (1..=count).map(|part| {
        let part = format!("{stem}-{part:05}-of-{count:05}.gguf");
        if names.contains(&part) {
            Ok(part)
        } else {
            Err(format!("has no {part}, which is a part of {name}"))
        }
    });
    parts.collect()
}

/// Whether a name contains this quantization as a word: `x-Q4_K_M.gguf` does not contain `Q4_K`.
fn has_quant(name: &str, quant: &str) -> bool {
    let (name, quant) = (name.to_ascii_lowercase(), quant.to_ascii_lowercase());
    name.match_indices(&quant).any(|(at, _)| {
        let before = name[..at].chars().next_back();
        let after = name[at + quant.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric)
            && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn not_found(file_or_quant: &str, ggufs: &BTreeSet<String>, names: &[String]) -> String {
    let files = if ggufs.is_empty() {
        list(names)
    } else {
        list(ggufs)
    };
    format!("has no file or quantization {file_or_quant:?}; its files are {files}")
}

/// Formats the first names.
fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let mut names = names.into_iter();
    let mut shown: Vec<&str> = names.by_ref().take(NAMES_MAX).map(String::as_str).collect();
    let others = names.count();
    let rest = format!("{others} more");
    if others > 0 {
        shown.push(&rest);
    }
    if shown.is_empty() {
        return "none".to_string();
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    fn open(files: &[&str], file_or_quant: Option<&str>) -> String {
        let selection = choose(&names(files), file_or_quant).expect("a selection");
        selection.open.expect("a file")
    }

    #[test]
    fn prefers_default_quantizations() {
        let mut files = vec![
            "m-BF16.gguf",
            "m-Q4_K_M.gguf",
            "m-Q8_0.gguf",
            "mmproj-a.gguf",
        ];
        for expected in ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-BF16.gguf"] {
            assert_eq!(open(&files, None), expected);
            files.retain(|name| *name != expected);
        }
        let only = choose(&names(&files), None).expect_err("a projector is not a model");
        assert!(only.contains("mmproj-a.gguf"), "{only}");
    }

    #[test]
    fn matches_quantizations_as_words() {
        let files = [
            "m-IQ4_XS.gguf",
            "m-Q4_K_M.gguf",
            "m-Q4_K_S.gguf",
            "m_q8_0.gguf",
            "UD-Q2_K_XL/m-00001-of-00001.gguf",
        ];
        assert_eq!(open(&files, Some("q4_k_s")), "m-Q4_K_S.gguf");
        assert_eq!(open(&files, Some("Q8_0")), "m_q8_0.gguf");
        assert_eq!(open(&files, Some("UD-Q2_K_XL")), files[4]);
        assert_eq!(open(&files, Some("m-IQ4_XS.gguf")), files[0]);
        for none in ["Q4_K", "Q4", "4_XS", "_M"] {
            let error = choose(&names(&files), Some(none)).expect_err("not a word of a name");
            assert!(error.contains("m-Q4_K_M.gguf"), "{error}");
        }
    }

    #[test]
    fn finds_the_quantization_in_a_file_name() {
        for (name, expected) in [
            ("gemma-3-1b-it-Q4_K_M.gguf", Some("Q4_K_M")),
            ("smollm2-360m-instruct-q8_0.gguf", Some("q8_0")),
            ("SmolLM2-135M-Instruct.Q4_1.gguf", Some("Q4_1")),
            ("m_iq3_xxs.gguf", Some("iq3_xxs")),
            ("UD-Q2_K_XL/m-00001-of-00002.gguf", Some("UD-Q2_K_XL")),
            ("m-F16/m-Q6_K-00001-of-00003.gguf", Some("Q6_K")),
            ("gpt-oss-20b-mxfp4.gguf", Some("mxfp4")),
            ("ggml-model-i2_s.gguf", Some("i2_s")),
            ("model.gguf", None),
            ("Q4.gguf", None),
        ] {
            assert_eq!(quantization(name), expected, "{name}");
        }
    }

    #[test]
    fn lists_models_by_names_that_select_them() {
        let labels = |files: &[&str]| {
            let names = names(files);
            let models = models(&names).into_iter();
            let opens = |label: &Option<String>, selection: &Selection| {
                choose(&names, label.as_deref()).as_ref() == Ok(selection)
            };
            let labels = models.map(|(label, selection)| {
                assert!(opens(&label, &selection), "{label:?}");
                label
            });
            labels.collect::<Vec<_>>()
        };
        let some = |label: &str| Some(label.to_string());
        let ggufs = [
            "a-Q8_0.gguf",
            "b-Q8_0.gguf",
            "c.gguf",
            "d-F16-00001-of-00002.gguf",
            "d-F16-00002-of-00002.gguf",
            "e-Q4_0-00001-of-00002.gguf",
            "mmproj-F32.gguf",
        ];
        let expected = [
            some("Q8_0"),
            some("b-Q8_0.gguf"),
            some("c.gguf"),
            some("F16"),
        ];
        assert_eq!(labels(&ggufs), expected);
        assert_eq!(labels(&["config.json", "model.safetensors"]), [None]);
        assert_eq!(labels(&["config.json"]), []);
    }

    #[test]
    fn selects_all_parts_of_a_split_file() {
        let mut files = names(&[
            "m-Q8_0-00002-of-00003.gguf",
            "m-Q8_0-00003-of-00003.gguf",
            "m-Q8_0-00001-of-00003.gguf",
        ]);
        for name in [None, Some("q8_0"), Some("m-Q8_0-00002-of-00003.gguf")] {
            let selection = choose(&files, name).expect("all parts");
            assert_eq!(
                selection.open.as_deref(),
                Some("m-Q8_0-00001-of-00003.gguf")
            );
            assert_eq!(selection.files.len(), 3);
        }
        files.remove(1);
        let error = choose(&files, None).expect_err("a part is missing");
        assert!(error.contains("m-Q8_0-00003-of-00003.gguf"), "{error}");
        assert_eq!(split("m-00000-of-00002.gguf", ".gguf"), None);
        assert_eq!(split("m-00003-of-00002.gguf", ".gguf"), None);
        assert_eq!(split("m-1-of-2.gguf", ".gguf"), None);
    }

    #[test]
    fn selects_safetensors_with_config_and_tokenizer() {
        let listed = names(&[
            "README.md",
            "config.json",
            "model.safetensors",
            "my_config.json",
            "onnx/tokenizer.json",
            "tokenizer.json",
            "tokenizer.model",
            "tokenizer_config.json",
            "chat_template.jinja",
            "config.json.bak",
            "additional_chat_templates/rag.jinja",
            "modules.json",
            "1_Pooling/config.json",
            "2_Dense/model.safetensors",
            "onnx/model.safetensors",
            "openvino/1_Pooling/config.json",
        ]);
        let selection = choose(&listed, None).expect("weights");
        let mut expected = listed.clone();
        expected.retain(|name| {
            ![
                "README.md",
                "my_config.json",
                "onnx/tokenizer.json",
                "config.json.bak",
                "onnx/model.safetensors",
                "openvino/1_Pooling/config.json",
            ]
            .contains(&name.as_str())
        });
        let mut files = selection.files.clone();
        files.sort();
        expected.sort();
        assert_eq!(files, expected);
        assert_eq!((selection.open, selection.index), (None, None));
        assert!(choose(&names(&["pytorch_model.bin"]), None).is_err());
        assert!(choose(&[], None).is_err());
    }

    #[test]
    fn rejects_shards_that_are_not_listed() {
        let files = names(&["a.safetensors", "b.safetensors"]);
        let index = r#"{"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}"#;
        assert_eq!(shards(index, &files).expect("valid index").len(), 2);
        for invalid in [
            "[]",
            "{",
            r#"{"weight_map": {"x": 1}}"#,
            r#"{"weight_map": {"x": "../a.safetensors"}}"#,
        ] {
            assert!(shards(invalid, &files).is_err(), "{invalid}");
        }
        // Published conversions keep the index of the original.
        let set = [
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
        ];
        let stale = r#"{"weight_map": {"x": "model-00001-of-00003.safetensors"}}"#;
        let found = shards(stale, &names(&set)).expect("a complete set");
        assert!(found.iter().eq(&set));
        assert!(shards(stale, &names(&set[..1])).is_err());
    }
}
