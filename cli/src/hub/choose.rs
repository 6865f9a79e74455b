//! Which files of a model are wanted.

use serde_json::Value;
use std::collections::BTreeSet;

/// Quantisations in the order in which one is taken where none was asked for.
const PREFERRED: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Files beside the weights of safetensors that loading reads.
const COMPANIONS: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer*.json",
    "tokenizer*.model",
    "chat_template.*",
];

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Names that a message lists at most.
const LISTED: usize = 12;

/// The files to have and the one to open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) files: Vec<String>,
    /// The file that names the shards, which are wanted too.
    pub(super) index: Option<String>,
    /// What to open; `None`: the folder.
    pub(super) opens: Option<String>,
}

impl Choice {
    /// One file, or the parts of one.
    fn parts(files: Vec<String>) -> Self {
        let opens = files.first().cloned();
        Self {
            files,
            index: None,
            opens,
        }
    }
}

/// Chooses among the names of a model's files by the name of one or of a quantisation, or by what
/// suits most. An error goes on from the name of the model or its folder.
pub(super) fn choose(names: &[String], pick: Option<&str>) -> Result<Choice, String> {
    if let Some(name) = pick.filter(|pick| names.iter().any(|name| name == pick)) {
        return Ok(Choice::parts(with_other_parts(name, names)?));
    }
    let ggufs: BTreeSet<String> = names.iter().filter_map(|name| first_part(name)).collect();
    // A projector of images is no model by itself.
    let models = || ggufs.iter().filter(|name| !name.contains("mmproj"));
    let of_quant = |quant: &str| models().find(|name| has_quant(name, quant));
    let found = match pick {
        Some(quant) => Some(of_quant(quant).ok_or_else(|| no_such(quant, &ggufs, names))?),
        None => PREFERRED.into_iter().find_map(of_quant).or(models().next()),
    };
    match found {
        Some(name) => Ok(Choice::parts(with_other_parts(name, names)?)),
        None => safetensors(names),
    }
}

/// The shards that an index speaks of, each held against the names that there are.
pub(super) fn shards(index: &str, names: &[String]) -> Result<BTreeSet<String>, String> {
    let index: Value =
        serde_json::from_str(index).map_err(|error| format!("{INDEX} is no JSON: {error}"))?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| format!("{INDEX} has no weight_map"))?;
    let mut shards = BTreeSet::new();
    for (tensor, shard) in map {
        let shard = shard
            .as_str()
            .ok_or_else(|| format!("{INDEX} has no file for {tensor}"))?;
        if !names.iter().any(|name| name == shard) {
            return Err(format!("{INDEX} names {shard:?}, which is not there"));
        }
        shards.insert(shard.to_string());
    }
    Ok(shards)
}

fn safetensors(names: &[String]) -> Result<Choice, String> {
    let has = |name: &str| names.iter().any(|n| n == name);
    let weights = [WEIGHTS, INDEX].into_iter().find(|name| has(name));
    let weights = weights.ok_or_else(|| {
        let there = list(names);
        format!("has neither GGUF files nor {WEIGHTS}; it has {there}")
    })?;
    let fits = |name: &str, pattern: &str| match pattern.split_once('*') {
        Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
        None => name == pattern,
    };
    let companion = |name: &&String| {
        !name.contains('/') && COMPANIONS.iter().any(|pattern| fits(name, pattern))
    };
    let mut files: Vec<String> = names.iter().filter(companion).cloned().collect();
    files.push(weights.to_string());
    Ok(Choice {
        files,
        index: (weights == INDEX).then(|| INDEX.to_string()),
        opens: None,
    })
}

/// A name in front of `-00002-of-00007.gguf` and the number of parts.
fn split(name: &str) -> Option<(&str, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (part, count) = (number(part)?, number(count)?);
    (1..=count).contains(&part).then_some((stem, count))
}

/// The GGUF file that stands for this one: itself, or the first of its parts.
fn first_part(name: &str) -> Option<String> {
    match split(name) {
        Some((stem, count)) => Some(format!("{stem}-00001-of-{count:05}.gguf")),
        None => name.ends_with(".gguf").then(|| name.to_string()),
    }
}

/// The file and the others that it is split into, the first one first.
fn with_other_parts(name: &str, names: &[String]) -> Result<Vec<String>, String> {
    let Some((stem, count)) = split(name) else {
        return Ok(vec![name.to_string()]);
    };
    let parts = (1..=count).map(|part| {
        let part = format!("{stem}-{part:05}-of-{count:05}.gguf");
        if names.contains(&part) {
            Ok(part)
        } else {
            Err(format!("has no {part}, a part of {name}"))
        }
    });
    parts.collect()
}

/// Whether a name has this quantisation as a word: `Q4_K` is none of `x-Q4_K_M.gguf`.
fn has_quant(name: &str, quant: &str) -> bool {
    let (name, quant) = (name.to_ascii_lowercase(), quant.to_ascii_lowercase());
    name.match_indices(&quant).any(|(at, _)| {
        let before = name[..at].chars().next_back();
        let after = name[at + quant.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric)
            && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn no_such(pick: &str, ggufs: &BTreeSet<String>, names: &[String]) -> String {
    let there = if ggufs.is_empty() {
        list(names)
    } else {
        list(ggufs)
    };
    format!("has no file or quantisation {pick:?}; it has {there}")
}

/// The first few names.
fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let mut names = names.into_iter();
    let mut shown: Vec<&str> = names.by_ref().take(LISTED).map(String::as_str).collect();
    let others = names.count();
    let rest = format!("{others} others");
    if others > 0 {
        shown.push(&rest);
    }
    if shown.is_empty() {
        return "no files".to_string();
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    fn opens(there: &[&str], pick: Option<&str>) -> String {
        let choice = choose(&names(there), pick).expect("there is something to choose");
        choice.opens.expect("it is a file")
    }

    #[test]
    fn without_a_wish_it_is_the_usual_quantisation() {
        let mut there = vec![
            "m-BF16.gguf",
            "m-Q4_K_M.gguf",
            "m-Q8_0.gguf",
            "mmproj-a.gguf",
        ];
        for expected in ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-BF16.gguf"] {
            assert_eq!(opens(&there, None), expected);
            there.retain(|name| *name != expected);
        }
        let only = choose(&names(&there), None).expect_err("a projector is no model");
        assert!(only.contains("mmproj-a.gguf"), "{only}");
    }

    #[test]
    fn a_quantisation_is_a_word_of_the_name() {
        let there = [
            "m-IQ4_XS.gguf",
            "m-Q4_K_M.gguf",
            "m-Q4_K_S.gguf",
            "m_q8_0.gguf",
            "UD-Q2_K_XL/m-00001-of-00001.gguf",
        ];
        assert_eq!(opens(&there, Some("q4_k_s")), "m-Q4_K_S.gguf");
        assert_eq!(opens(&there, Some("Q8_0")), "m_q8_0.gguf");
        assert_eq!(opens(&there, Some("UD-Q2_K_XL")), there[4]);
        assert_eq!(opens(&there, Some("m-IQ4_XS.gguf")), there[0]);
        for none in ["Q4_K", "Q4", "4_XS", "_M"] {
            let why = choose(&names(&there), Some(none)).expect_err("no word of a name");
            assert!(why.contains("m-Q4_K_M.gguf"), "{why}");
        }
    }

    #[test]
    fn a_split_file_comes_whole_or_not_at_all() {
        let mut there = names(&[
            "m-Q8_0-00002-of-00003.gguf",
            "m-Q8_0-00003-of-00003.gguf",
            "m-Q8_0-00001-of-00003.gguf",
        ]);
        for pick in [None, Some("q8_0"), Some("m-Q8_0-00002-of-00003.gguf")] {
            let choice = choose(&there, pick).expect("all parts are there");
            assert_eq!(choice.opens.as_deref(), Some("m-Q8_0-00001-of-00003.gguf"));
            assert_eq!(choice.files.len(), 3);
        }
        there.remove(1);
        let why = choose(&there, None).expect_err("a part is missing");
        assert!(why.contains("m-Q8_0-00003-of-00003.gguf"), "{why}");
        assert_eq!(split("m-00000-of-00002.gguf"), None);
        assert_eq!(split("m-00003-of-00002.gguf"), None);
        assert_eq!(split("m-1-of-2.gguf"), None);
    }

    #[test]
    fn safetensors_come_with_what_loading_reads() {
        let there = names(&[
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
        ]);
        let choice = choose(&there, None).expect("there are weights");
        let mut expected = there.clone();
        expected.retain(|name| {
            ![
                "README.md",
                "my_config.json",
                "onnx/tokenizer.json",
                "config.json.bak",
            ]
            .contains(&name.as_str())
        });
        let mut files = choice.files.clone();
        files.sort();
        expected.sort();
        assert_eq!(files, expected);
        assert_eq!((choice.opens, choice.index), (None, None));
        assert!(choose(&names(&["pytorch_model.bin"]), None).is_err());
        assert!(choose(&[], None).is_err());
    }

    #[test]
    fn shards_are_names_that_are_there() {
        let there = names(&["a.safetensors", "b.safetensors"]);
        let index = r#"{"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}"#;
        assert_eq!(shards(index, &there).expect("both are there").len(), 2);
        for bad in [
            "[]",
            "{",
            r#"{"weight_map": {"x": 1}}"#,
            r#"{"weight_map": {"x": "../a.safetensors"}}"#,
        ] {
            assert!(shards(bad, &there).is_err(), "{bad}");
        }
    }
}
