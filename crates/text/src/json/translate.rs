//! Conversion of a `tokenizer.json` to the keys of a GGUF file, and the reverse.
//!
//! Neither format can express everything that the other can. So a converted tokenizer is compared
//! with the original on a text that covers all scripts and pre-tokenizers.

use super::file::{read, read_config};
use crate::bpe::{Alphabet, IgnoreMerges};
use crate::kind::VocabKind;
use crate::pattern::Deadline;
use crate::pieces::TokenType;
use crate::spec::{MergeOrder, ModelSpec, TokenizerSpec};
use crate::steps::{self, Normalization, Position, Step};
use crate::tokenizer::{EncodeOptions, SpecialTokens, Tokenizer};
use crate::vocab::Vocab;
use crate::{pre, spm};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Letters, digits, marks, white space and newlines in combinations that distinguish pre-tokenizers.
const PROBE: &str = "Hello, world! It's WE'LL they'Re I'd 1234567 12.5% x=3;y_z \
    HTTPServer camelCase iPhone\n\n\n  \tindented\r\n  two   spaces    end \
    caf\u{e9} na\u{ef}ve x\u{301} \u{dc}ber \u{393}\u{3b5}\u{3b9}\u{3ac} \
    \u{41f}\u{440}\u{438}\u{432}\u{435}\u{442} \u{645}\u{631}\u{62d}\u{628}\u{627} \
    \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940} \u{e2a}\u{e27}\u{e31}\u{e2a} \
    \u{65e5}\u{672c}\u{8a9e}\u{306e}\u{30c6}\u{30ad}\u{30b9}\u{30c8}\u{3002}\u{4e2d}\u{6587}123 \
    \u{d55c}\u{ad6d}\u{c5b4} \u{1f642}\u{1f468}\u{200d}\u{1f469} <a href='b'>//c</a> \
    $9.99 (a)[b]{c} #!/bin ... ??!\n\u{661}\u{662}\u{663} \u{b2}\u{bd} don\u{2019}t\u{3000}.";

impl Vocab<'_> {
    /// Converts a `tokenizer.json` and an optional `tokenizer_config.json` to keys, and passes them to
    /// `use_keys`.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`]; `Unsupported` for a tokenizer that keys cannot describe.
    pub fn from_json<R>(
        tokenizer: &str,
        config: Option<&str>,
        use_keys: impl FnOnce(&Vocab<'_>) -> Result<R>,
    ) -> Result<R> {
        let original = Tokenizer::from_json(tokenizer, config)?;
        let file = read(tokenizer)?;
        let config = config.map(read_config).transpose()?.unwrap_or_default();
        let spec = file.spec(&config)?;
        let merges = joined(&spec);
        let vocab = vocab(&spec, &merges)?;
        let converted = Tokenizer::new(&vocab)?;
        compare(&converted, &original).context("converting tokenizer.json to GGUF keys")?;
        use_keys(&vocab)
    }

    /// Converts these keys to the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`Tokenizer::new`]; `Unsupported` for vocabulary types without a conversion.
    pub fn to_json(&self) -> Result<String> {
        let original = Tokenizer::new(self)?;
        let spec = self.spec()?;
        let text = match spec.kind {
            VocabKind::Gpt2 => byte_level(&spec, &self.merges)?,
            VocabKind::Llama => self.sentencepiece(&spec),
            other => bail!(
                Unsupported,
                "tokenizer.ggml.model: cannot convert {other:?} to tokenizer.json"
            ),
        };
        let text = text.to_string();
        let converted = Tokenizer::from_json(&text, None)?;
        compare(&converted, &original).context("converting GGUF keys to tokenizer.json")?;
        Ok(text)
    }

    fn sentencepiece(&self, spec: &TokenizerSpec<'_>) -> Value {
        let space = spm::SPACE.to_string();
        let mut normalizers = Vec::new();
        let mut decoders = vec![
            json!({ "type": "Replace", "pattern": { "String": space }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        if spec.add_space_prefix {
            normalizers.push(json!({ "type": "Prepend", "prepend": space }));
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        normalizers
            .push(json!({ "type": "Replace", "pattern": { "String": " " }, "content": space }));
        let model = json!({
            "type": "BPE", "dropout": null,
            "unk_token": spec.unk.map(|id| &*spec.tokens[id as usize]),
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary(spec), "merges": self.merges_by_score(spec),
        });
        let normalizer = json!({ "type": "Sequence", "normalizers": normalizers });
        let decoder = json!({ "type": "Sequence", "decoders": decoders });
        file(spec, [normalizer, Value::Null, decoder, model])
    }

    /// Converts scores to merges: all pairs of tokens that form a token, ordered by its score, best
    /// first.
    fn merges_by_score(&self, spec: &TokenizerSpec<'_>) -> Vec<[&str; 2]> {
        let texts = || self.tokens.iter().zip(&spec.token_types).enumerate();
        let texts = || texts().filter(|(_, (_, token_type))| token_type.is_text());
        let ids: HashMap<&str, usize> = texts().map(|(id, (token, _))| (*token, id)).collect();
        let score = |id: usize| self.scores.get(id).copied().unwrap_or(0.0);
        let mut merges = Vec::new();
        for (id, (token, _)) in texts() {
            for (at, _) in token.char_indices().skip(1) {
                let parts: [&str; 2] = token.split_at(at).into();
                if let [Some(left), Some(right)] = parts.map(|part| ids.get(part)) {
                    merges.push((score(id), Reverse((*left, *right)), parts));
                }
            }
        }
        merges.sort_by(|(a, x, _), (b, y, _)| b.total_cmp(a).then(y.cmp(x)));
        merges.into_iter().map(|(_, _, parts)| parts).collect()
    }
}

/// Builds the file of a vocabulary of the byte-level alphabet from its merges, two parts with a space
/// between them.
pub(super) fn byte_level<T: AsRef<str>>(spec: &TokenizerSpec<'_>, merges: &[T]) -> Result<Value> {
    let (_, pre) = pre::find(spec.pre, spec.tokens.len())?;
    let split = |regex: &&str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
    let mut splits: Vec<Value> = pre.regexes.iter().map(split).collect();
    let level = |extra: &str| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, extra: false });
    splits.push(level("use_regex"));
    let merges: Vec<&str> = merges.iter().map(AsRef::as_ref).collect();
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": pre.ignore_merges == IgnoreMerges::Always,
        "vocab": vocabulary(spec), "merges": merges,
    });
    let normalizer = match pre.form {
        Some(form) => json!({ "type": form.name() }),
        None => Value::Null,
    };
    let pre = json!({ "type": "Sequence", "pretokenizers": splits });
    Ok(file(spec, [normalizer, pre, level("use_regex"), model]))
}

/// Returns the merges in the form of GGUF.
fn joined(spec: &TokenizerSpec<'_>) -> Vec<String> {
    match &spec.model {
        ModelSpec::Bpe {
            order: MergeOrder::Merges(merges),
            ..
        } => merges.iter().map(|(a, b)| format!("{a} {b}")).collect(),
        _ => Vec::new(),
    }
}

/// Converts the specification of a `tokenizer.json` to keys.
fn vocab<'a>(spec: &'a TokenizerSpec<'_>, merges: &'a [String]) -> Result<Vocab<'a>> {
    let ModelSpec::Bpe {
        alphabet,
        order: MergeOrder::Merges(list),
        ignore_merges,
        ..
    } = &spec.model
    else {
        bail!(
            Unsupported,
            "tokenizer.json: cannot convert {:?} to GGUF keys",
            spec.kind
        );
    };
    let has = |id: Option<u32>, ids: &[u32]| id.is_some_and(|id| ids.contains(&id));
    let mut vocab = Vocab {
        tokens: spec.tokens.iter().map(|token| &**token).collect(),
        types: spec
            .token_types
            .iter()
            .map(|token_type| token_type.to_ggml())
            .collect(),
        bos: spec.bos,
        eos: spec.eos,
        unk: spec.unk,
        add_bos: Some(has(spec.bos, &spec.before)),
        add_eos: Some(has(spec.eos, &spec.after)),
        ..Vocab::default()
    };
    match alphabet {
        Alphabet::Bytes => {
            vocab.model = "gpt2";
            vocab.pre = Some(matching_pre_tokenizer(&spec.steps, *ignore_merges)?);
            vocab.merges = merges.iter().map(String::as_str).collect();
        }
        Alphabet::Characters => {
            vocab.model = "llama";
            vocab.add_space_prefix = Some(spec.add_space_prefix);
            vocab.scores = scores(&vocab.tokens, list);
        }
    }
    Ok(vocab)
}

/// Returns the name of the byte-level pre-tokenizer that splits the probe as `steps` do, preferably one with
/// the same normalization.
fn matching_pre_tokenizer(steps: &[Step], ignore_merges: IgnoreMerges) -> Result<&'static str> {
    let words = |steps: &[Step]| {
        let mut words = Vec::new();
        let deadline = Deadline::start(PROBE.len());
        steps::pre_tokenize(steps, PROBE, Position::Start, deadline, |word| {
            words.push(word.to_string());
            Ok(())
        })?;
        Ok::<_, Error>(words)
    };
    let expected = words(steps)?;
    let mut found = Vec::new();
    for (name, pre) in pre::all() {
        if pre.ignore_merges == ignore_merges && words(&pre.steps()?)? == expected {
            found.push((name, pre.form));
        }
    }
    let form = steps.iter().find_map(|step| match step {
        Step::Normalize(Normalization::Form(form)) => Some(*form),
        _ => None,
    });
    let same = found.iter().find(|(_, other)| *other == form);
    let Some((name, _)) = same.or(found.first()) else {
        bail!(
            Unsupported,
            "tokenizer.json: no tokenizer.ggml.pre value matches its pre_tokenizer"
        );
    };
    Ok(name)
}

/// Converts merges to scores: earlier merges have higher scores, tokens without a merge the lowest.
fn scores(tokens: &[&str], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    let rank = |token: &&str| ranks.get(*token).copied().unwrap_or(merges.len());
    tokens.iter().map(|token| -(rank(token) as f32)).collect()
}

/// Tokens and their ids; the first of duplicates wins.
fn vocabulary(spec: &TokenizerSpec<'_>) -> Map<String, Value> {
    let mut vocabulary = Map::new();
    for (id, token) in spec.tokens.iter().enumerate() {
        vocabulary
            .entry(token.to_string())
            .or_insert_with(|| id.into());
    }
    vocabulary
}

/// Builds the file from its parts.
fn file(
    spec: &TokenizerSpec<'_>,
    [normalizer, pre_tokenizer, decoder, model]: [Value; 4],
) -> Value {
    let listed = spec.tokens.iter().zip(&spec.token_types).enumerate();
    let added = listed.filter(|(_, (_, token_type))| {
        token_type.is_control() || **token_type == TokenType::UserDefined
    });
    let added = added.map(|(id, (token, token_type))| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": token_type.is_control(),
        })
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor(spec), "decoder": decoder, "model": model,
    })
}

/// Builds the post-processor, which adds special tokens.
fn post_processor(spec: &TokenizerSpec<'_>) -> Value {
    if spec.before.is_empty() && spec.after.is_empty() {
        return Value::Null;
    }
    let special = |id: &u32, type_id: u32| {
        let token = &spec.tokens[*id as usize];
        json!({ "SpecialToken": { "id": token, "type_id": type_id } })
    };
    let sequence = |name: &str, type_id: u32| {
        let before = spec.before.iter().map(|id| special(id, type_id));
        let text = json!({ "Sequence": { "id": name, "type_id": type_id } });
        let after = spec.after.iter().map(|id| special(id, type_id));
        before
            .chain(std::iter::once(text))
            .chain(after)
            .collect::<Vec<_>>()
    };
    let ids = spec.before.iter().chain(&spec.after).map(|id| {
        let token = &spec.tokens[*id as usize];
        let ids = json!({ "id": token, "ids": [id], "tokens": [token] });
        (token.to_string(), ids)
    });
    let pair = [sequence("A", 0), sequence("B", 1)].concat();
    json!({
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": pair,
        "special_tokens": ids.collect::<Map<_, _>>(),
    })
}

/// Checks that the converted tokenizer encodes the probe as the original does.
pub(super) fn compare(converted: &Tokenizer, original: &Tokenizer) -> Result<()> {
    let options = |specials| EncodeOptions {
        add_special: true,
        specials,
    };
    // The first few special tokens within text.
    let special = (0..u32::try_from(original.vocab_size()).unwrap_or(u32::MAX))
        .filter(|id| original.is_control(*id))
        .take(8)
        .map(|id| {
            format!(
                "{}x",
                String::from_utf8_lossy(original.token_bytes_with_special(id))
            )
        });
    let special: String = std::iter::once(PROBE.to_string()).chain(special).collect();
    for (text, specials) in [
        (PROBE, SpecialTokens::Text),
        (&*special, SpecialTokens::Tokens),
    ] {
        let ids = original.encode(text, options(specials))?;
        if converted.encode(text, options(specials))? != ids {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the converted tokenizer would produce different tokens",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trained tokenizer with changes.
    fn golden(name: &str, edit: fn(&mut Value)) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tokenizers");
        let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
        let mut file = serde_json::from_str(&text).unwrap();
        edit(&mut file);
        file.to_string()
    }

    /// Sets the pre-tokenizer of GPT-2, which has a name.
    fn as_gpt_2(file: &mut Value) {
        file["pre_tokenizer"] =
            json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": true });
        file["model"]["ignore_merges"] = json!(false);
    }

    #[test]
    fn round_trips_through_gguf_keys() {
        for (json, model) in [
            (golden("byte_level", as_gpt_2), "gpt2"),
            (golden("spm_bpe", |_| ()), "llama"),
        ] {
            let converted = Vocab::from_json(&json, None, |vocab| {
                assert_eq!(vocab.model, model);
                assert_eq!(vocab.types.len(), vocab.tokens.len());
                vocab.to_json()
            });
            // Each conversion compares its input and output; this compares the ends.
            let [first, last] =
                [&json, &converted.unwrap()].map(|json| Tokenizer::from_json(json, None).unwrap());
            compare(&first, &last).unwrap();
        }
    }

    #[test]
    fn keys_keep_the_normalization() {
        // The file is in NFC.
        let json = golden("byte_level", as_gpt_2);
        let converted = Vocab::from_json(&json, None, |vocab| {
            assert_eq!(vocab.pre, Some("olmo"));
            vocab.to_json()
        });
        let converted = Tokenizer::from_json(&converted.unwrap(), None).unwrap();
        let ids = |text: &str| converted.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids("e\u{301}"), ids("\u{e9}"));
        let json = golden("byte_level", |file| {
            as_gpt_2(file);
            file["normalizer"] = Value::Null;
        });
        let pre = Vocab::from_json(&json, None, |vocab| Ok(vocab.pre == Some("gpt-2")));
        assert!(pre.unwrap());
    }

    /// The pre-tokenizers of files: splits, digits and bytes in a sequence.
    #[test]
    fn pre_tokenizers_are_detected() {
        for (name, ignore_merges) in [
            ("deepseek-llm", false),
            ("deepseek-coder", false),
            ("deepseek-v3", false),
            ("dbrx", false),
            ("smollm", false),
            ("llama-bpe", true),
            ("tekken", true),
        ] {
            let (_, pre) = pre::find(Some(name), 1).unwrap();
            let step = |regex: &&str| match *regex {
                r"\p{N}" => json!({ "type": "Digits", "individual_digits": true }),
                _ => json!({
                    "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false,
                }),
            };
            let mut steps: Vec<Value> = pre.regexes.iter().map(step).collect();
            steps.push(
                json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false }),
            );
            let json = golden("byte_level", |_| ());
            let mut file: Value = serde_json::from_str(&json).unwrap();
            file["normalizer"] = Value::Null;
            file["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": steps });
            file["model"]["ignore_merges"] = json!(ignore_merges);
            let detected = Vocab::from_json(&file.to_string(), None, |vocab| {
                Ok(vocab.pre.map(str::to_string))
            });
            assert_eq!(detected.unwrap().as_deref(), Some(name));
        }
    }

    #[test]
    fn rejects_tokenizers_that_keys_cannot_express() {
        let message = |name: &str, edit: fn(&mut Value)| {
            let error = Vocab::from_json(&golden(name, edit), None, |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            error.message().to_string()
        };
        let kind = message("unigram", |_| ());
        assert!(kind.contains("cannot convert"), "{kind}");
        // Its regex matches no known pre-tokenizer.
        let pre = message("byte_level", |_| ());
        assert!(pre.contains("no tokenizer.ggml.pre value"), "{pre}");
        let normalizer = message("spm_bpe", |file| {
            file["normalizer"] = json!({ "type": "Sequence", "normalizers": [
                file["normalizer"], { "type": "Lowercase" },
            ] });
        });
        assert!(normalizer.contains("different tokens"), "{normalizer}");
    }

    #[test]
    fn converts_scores_to_merges() {
        let vocab = Vocab {
            tokens: vec!["a", "b", "c", "ab", "bc", "abc"],
            scores: vec![0.0, 0.0, 0.0, -2.0, -1.0, -3.0],
            model: "llama",
            ..Vocab::default()
        };
        let merges = vocab.merges_by_score(&vocab.spec().unwrap());
        assert_eq!(merges[..2], [["b", "c"], ["a", "b"]], "the best first");
        assert_eq!(
            merges[2..],
            [["a", "bc"], ["ab", "c"]],
            "then of earlier tokens"
        );
    }
}
