//! A `tokenizer.json` as the keys of a GGUF file, and the reverse.
//!
//! Neither form can say all that the other can. So what was translated is held against what it was
//! made from, over a text that has something of every script and of every rule.

use super::file::{read, read_config};
use crate::bpe::{Alphabet, KnownWords};
use crate::kind::Kind;
use crate::pattern::Clock;
use crate::pieces::Role;
use crate::plan::{Method, Order, Plan};
use crate::steps::{self, Place, Step};
use crate::tokenizer::{Encode, Specials, Tokenizer};
use crate::vocab::Vocab;
use crate::{pre, spm};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Letters, digits, marks, spaces and line ends in the company by which rules tell them apart.
const PROBE: &str = "Hello, world! It's WE'LL they'Re I'd 1234567 12.5% x=3;y_z \
    HTTPServer camelCase iPhone\n\n\n  \tindented\r\n  two   spaces    end \
    caf\u{e9} na\u{ef}ve x\u{301} \u{dc}ber \u{393}\u{3b5}\u{3b9}\u{3ac} \
    \u{41f}\u{440}\u{438}\u{432}\u{435}\u{442} \u{645}\u{631}\u{62d}\u{628}\u{627} \
    \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940} \u{e2a}\u{e27}\u{e31}\u{e2a} \
    \u{65e5}\u{672c}\u{8a9e}\u{306e}\u{30c6}\u{30ad}\u{30b9}\u{30c8}\u{3002}\u{4e2d}\u{6587}123 \
    \u{d55c}\u{ad6d}\u{c5b4} \u{1f642}\u{1f468}\u{200d}\u{1f469} <a href='b'>//c</a> \
    $9.99 (a)[b]{c} #!/bin ... ??!\n\u{661}\u{662}\u{663} \u{b2}\u{bd} don\u{2019}t\u{3000}.";

impl Vocab<'_> {
    /// Hands the keys that stand for a `tokenizer.json` to `take`; `None` for the configuration where
    /// there is none.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`]; `Unsupported` for a tokenizer that keys cannot describe.
    pub fn of_json<R>(
        tokenizer: &str,
        config: Option<&str>,
        take: impl FnOnce(&Vocab<'_>) -> Result<R>,
    ) -> Result<R> {
        let wanted = Tokenizer::from_json(tokenizer, config)?;
        let file = read(tokenizer)?;
        let config = config.map(read_config).transpose()?.unwrap_or_default();
        let plan = file.plan(&config)?;
        let merges = joined(&plan);
        let vocab = of_plan(&plan, &merges)?;
        let found = Tokenizer::new(&vocab)?;
        hold(&found, &wanted).context("tokenizer.json as keys of GGUF")?;
        take(&vocab)
    }

    /// The text of a `tokenizer.json` for these keys.
    ///
    /// # Errors
    /// As [`Tokenizer::new`]; `Unsupported` for a kind that is not translated.
    pub fn to_json(&self) -> Result<String> {
        let wanted = Tokenizer::new(self)?;
        let plan = self.plan()?;
        let text = match plan.kind {
            Kind::Gpt2 => self.byte_level(&plan)?,
            Kind::Llama => self.visible_spaces(&plan),
            other => bail!(
                Unsupported,
                "tokenizer.ggml.model: {other:?} is not translated into tokenizer.json"
            ),
        };
        let text = text.to_string();
        let found = Tokenizer::from_json(&text, None)?;
        hold(&found, &wanted).context("keys of GGUF as tokenizer.json")?;
        Ok(text)
    }

    fn byte_level(&self, plan: &Plan<'_>) -> Result<Value> {
        let (_, rule) = pre::find(self.pre, self.tokens.len())?;
        let split = |regex: &&str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
        let mut cuts: Vec<Value> = rule.regexes.iter().map(split).collect();
        let level = |extra: &str| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, extra: false });
        cuts.push(level("use_regex"));
        let model = json!({
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": rule.known_words == KnownWords::Whole,
            "vocab": vocabulary(plan), "merges": self.merges,
        });
        let pre = json!({ "type": "Sequence", "pretokenizers": cuts });
        Ok(file(plan, [Value::Null, pre, level("use_regex"), model]))
    }

    fn visible_spaces(&self, plan: &Plan<'_>) -> Value {
        let space = spm::SPACE.to_string();
        let mut edits = Vec::new();
        let mut shown = vec![
            json!({ "type": "Replace", "pattern": { "String": space }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        if plan.begins_with_space {
            edits.push(json!({ "type": "Prepend", "prepend": space }));
            shown.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        edits.push(json!({ "type": "Replace", "pattern": { "String": " " }, "content": space }));
        let model = json!({
            "type": "BPE", "dropout": null,
            "unk_token": plan.unk.map(|id| &*plan.tokens[id as usize]),
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary(plan), "merges": self.merges_by_score(plan),
        });
        let normalizer = json!({ "type": "Sequence", "normalizers": edits });
        let decoder = json!({ "type": "Sequence", "decoders": shown });
        file(plan, [normalizer, Value::Null, decoder, model])
    }

    /// Every way in which two tokens make a third, the best third first: what scores come down to.
    fn merges_by_score(&self, plan: &Plan<'_>) -> Vec<[&str; 2]> {
        let texts = || self.tokens.iter().zip(&plan.roles).enumerate();
        let texts = || texts().filter(|(_, (_, role))| role.is_text());
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

/// A list of merges as GGUF has it.
fn joined(plan: &Plan<'_>) -> Vec<String> {
    match &plan.method {
        Method::Bpe {
            order: Order::List(merges),
            ..
        } => merges.iter().map(|(a, b)| format!("{a} {b}")).collect(),
        _ => Vec::new(),
    }
}

/// The keys of a plan that came of a `tokenizer.json`.
fn of_plan<'a>(plan: &'a Plan<'_>, merges: &'a [String]) -> Result<Vocab<'a>> {
    let Method::Bpe {
        alphabet,
        order: Order::List(list),
        known_words,
        ..
    } = &plan.method
    else {
        bail!(
            Unsupported,
            "tokenizer.json: {:?} is not translated into keys of GGUF",
            plan.kind
        );
    };
    let has = |id: Option<u32>, ids: &[u32]| id.is_some_and(|id| ids.contains(&id));
    let mut vocab = Vocab {
        tokens: plan.tokens.iter().map(|token| &**token).collect(),
        types: plan.roles.iter().map(|role| role.to_ggml()).collect(),
        bos: plan.bos,
        eos: plan.eos,
        unk: plan.unk,
        add_bos: Some(has(plan.bos, &plan.before)),
        add_eos: Some(has(plan.eos, &plan.after)),
        ..Vocab::default()
    };
    match alphabet {
        Alphabet::Bytes => {
            vocab.model = "gpt2";
            vocab.pre = Some(rule(&plan.steps, *known_words)?);
            vocab.merges = merges.iter().map(String::as_str).collect();
        }
        Alphabet::Characters => {
            vocab.model = "llama";
            vocab.add_space_prefix = Some(plan.begins_with_space);
            vocab.scores = scores(&vocab.tokens, list);
        }
    }
    Ok(vocab)
}

/// The rule of byte-level vocabularies that cuts as these steps do.
fn rule(steps: &[Step], known_words: KnownWords) -> Result<&'static str> {
    let words = |steps: &[Step]| {
        let mut words = Vec::new();
        let clock = Clock::start(PROBE.len());
        steps::walk(steps, PROBE, Place::Start, clock, |word| {
            words.push(word.to_string());
            Ok(())
        })?;
        Ok::<_, Error>(words)
    };
    let wanted = words(steps)?;
    for (name, rule) in pre::rules() {
        if rule.known_words == known_words && words(&rule.steps()?)? == wanted {
            return Ok(name);
        }
    }
    bail!(
        Unsupported,
        "tokenizer.json: no rule of tokenizer.ggml.pre cuts text as its pre_tokenizer does"
    );
}

/// Scores by which what is merged first is best; tokens that nothing leads to are worst.
fn scores(tokens: &[&str], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    let rank = |token: &&str| ranks.get(*token).copied().unwrap_or(merges.len());
    tokens.iter().map(|token| -(rank(token) as f32)).collect()
}

/// Tokens and their ids; of two that are spelt alike, the first.
fn vocabulary(plan: &Plan<'_>) -> Map<String, Value> {
    let mut vocabulary = Map::new();
    for (id, token) in plan.tokens.iter().enumerate() {
        vocabulary
            .entry(token.to_string())
            .or_insert_with(|| id.into());
    }
    vocabulary
}

/// The file around these parts.
fn file(plan: &Plan<'_>, [normalizer, pre_tokenizer, decoder, model]: [Value; 4]) -> Value {
    let listed = plan.tokens.iter().zip(&plan.roles).enumerate();
    let added = listed.filter(|(_, (_, role))| role.is_markup() || **role == Role::UserDefined);
    let added = added.map(|(id, (token, role))| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": role.is_markup(),
        })
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": template(plan), "decoder": decoder, "model": model,
    })
}

/// What goes in front and behind.
fn template(plan: &Plan<'_>) -> Value {
    if plan.before.is_empty() && plan.after.is_empty() {
        return Value::Null;
    }
    let special = |id: &u32, of: u32| {
        let token = &plan.tokens[*id as usize];
        json!({ "SpecialToken": { "id": token, "type_id": of } })
    };
    let around = |name: &str, of: u32| {
        let before = plan.before.iter().map(|id| special(id, of));
        let text = json!({ "Sequence": { "id": name, "type_id": of } });
        let after = plan.after.iter().map(|id| special(id, of));
        before
            .chain(std::iter::once(text))
            .chain(after)
            .collect::<Vec<_>>()
    };
    let ids = plan.before.iter().chain(&plan.after).map(|id| {
        let token = &plan.tokens[*id as usize];
        let ids = json!({ "id": token, "ids": [id], "tokens": [token] });
        (token.to_string(), ids)
    });
    let pair = [around("A", 0), around("B", 1)].concat();
    json!({
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": pair,
        "special_tokens": ids.collect::<Map<_, _>>(),
    })
}

/// Refuses a tokenizer that does something else than the one it was made from.
fn hold(found: &Tokenizer, wanted: &Tokenizer) -> Result<()> {
    let options = |specials| Encode {
        add_special: true,
        specials,
    };
    // Special tokens in the midst of text, the first few of them.
    let spelt = (0..u32::try_from(wanted.vocab_size()).unwrap_or(u32::MAX))
        .filter(|id| wanted.is_control(*id))
        .take(8)
        .map(|id| format!("{}x", String::from_utf8_lossy(wanted.token_spelling(id))));
    let spelt: String = std::iter::once(PROBE.to_string()).chain(spelt).collect();
    for (text, specials) in [(PROBE, Specials::Text), (&*spelt, Specials::Tokens)] {
        let ids = wanted.encode(text, options(specials))?;
        if found.encode(text, options(specials))? != ids {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the same text would become other tokens",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trained tokenizer, with changes.
    fn golden(name: &str, edit: fn(&mut Value)) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tokenizers");
        let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
        let mut file = serde_json::from_str(&text).unwrap();
        edit(&mut file);
        file.to_string()
    }

    /// Cuts by the rule of GPT-2, which has a name.
    fn as_gpt_2(file: &mut Value) {
        file["pre_tokenizer"] =
            json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": true });
        file["model"]["ignore_merges"] = json!(false);
    }

    #[test]
    fn files_become_keys_and_files_again() {
        for (json, model) in [
            (golden("byte_level", as_gpt_2), "gpt2"),
            (golden("spm_bpe", |_| ()), "llama"),
        ] {
            let back = Vocab::of_json(&json, None, |vocab| {
                assert_eq!(vocab.model, model);
                assert_eq!(vocab.types.len(), vocab.tokens.len());
                vocab.to_json()
            });
            // Each step is held against the one before; the ends are here.
            let [first, last] =
                [&json, &back.unwrap()].map(|json| Tokenizer::from_json(json, None).unwrap());
            hold(&first, &last).unwrap();
        }
    }

    #[test]
    fn what_keys_cannot_say_is_refused() {
        let refused = |name: &str, edit: fn(&mut Value)| {
            let error = Vocab::of_json(&golden(name, edit), None, |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            error.message().to_string()
        };
        let kind = refused("unigram", |_| ());
        assert!(kind.contains("is not translated"), "{kind}");
        // Its expression is nobody's.
        let cuts = refused("byte_level", |_| ());
        assert!(cuts.contains("no rule of tokenizer.ggml.pre"), "{cuts}");
        let edits = refused("spm_bpe", |file| {
            file["normalizer"] = json!({ "type": "Sequence", "normalizers": [
                file["normalizer"], { "type": "Lowercase" },
            ] });
        });
        assert!(edits.contains("other tokens"), "{edits}");
    }

    #[test]
    fn scores_are_merges() {
        let vocab = Vocab {
            tokens: vec!["a", "b", "c", "ab", "bc", "abc"],
            scores: vec![0.0, 0.0, 0.0, -2.0, -1.0, -3.0],
            model: "llama",
            ..Vocab::default()
        };
        let merges = vocab.merges_by_score(&vocab.plan().unwrap());
        assert_eq!(merges[..2], [["b", "c"], ["a", "b"]], "the best first");
        assert_eq!(
            merges[2..],
            [["a", "bc"], ["ab", "c"]],
            "then of earlier tokens"
        );
    }
}
