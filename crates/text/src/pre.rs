//! Pre-tokenizers of byte-level vocabularies, selected by `tokenizer.ggml.pre`.
//!
//! Names are those of llama.cpp, regexes those of the models' `tokenizer.json` files, which llama.cpp
//! adapts. The regexes apply in order: each one splits all parts that the previous one produced, matches
//! and the text between.

use super::bert;
use super::bpe::IgnoreMerges;
use super::pattern::Pattern;
use super::steps::{Normalization, NormalizationForm, Split, Step};
use tabla_core::error::{Result, bail};

/// A pre-tokenizer.
#[derive(Debug)]
pub(super) struct Pre {
    /// Values of `tokenizer.ggml.pre`; the first one is canonical.
    pub(super) names: &'static [&'static str],
    /// Normalization before the regexes. GGUF files have no key for it.
    pub(super) form: Option<NormalizationForm>,
    pub(super) regexes: &'static [&'static str],
    pub(super) ignore_merges: IgnoreMerges,
    /// Whether BOS is added by default.
    pub(super) add_bos: bool,
}

/// Vocabulary size of Llama 3.
const LLAMA_3_TOKENS: usize = 128_256;

/// Returns the name and the pre-tokenizer for a file's `tokenizer.ggml.pre`.
///
/// # Errors
/// `Unsupported` for an unknown name: a wrong pre-tokenizer would silently produce wrong tokens.
pub(super) fn find(name: Option<&str>, tokens: usize) -> Result<(&'static str, &'static Pre)> {
    let name = name.unwrap_or_else(|| {
        // Microsoft's BitNet files have the Llama 3 vocabulary and no name.
        let name = if tokens == LLAMA_3_TOKENS {
            "llama-bpe"
        } else {
            "gpt-2"
        };
        tracing::warn!(tokens, "tokenizer.ggml.pre is missing, using {name}");
        name
    });
    let names = ROWS
        .iter()
        .flat_map(|row| row.names.iter().map(move |&known| (known, row)));
    if let Some(row) = names.into_iter().find(|&(known, _)| known == name) {
        return Ok(row);
    }
    let known: Vec<_> = ROWS.iter().flat_map(|row| row.names).copied().collect();
    bail!(
        Unsupported,
        "tokenizer.ggml.pre: unknown pre-tokenizer {name:?}; known pre-tokenizers: {}",
        known.join(", ")
    );
}

/// All pre-tokenizers with their canonical names.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static Pre)> {
    let named = |row: &'static Pre| row.names.first().map(|name| (*name, row));
    ROWS.iter().filter_map(named)
}

impl Pre {
    /// Returns the normalization and the splits, in order.
    pub(super) fn steps(&self) -> Result<Vec<Step>> {
        let form = self.form.map(Normalization::Form).map(Step::Normalize);
        let split = |regex: &&str| Ok(Step::Split(Split::isolated(Pattern::regex(regex)?)));
        let splits = self.regexes.iter().map(split);
        form.into_iter().map(Ok).chain(splits).collect()
    }
}

/// Default values of a row.
const DEFAULT: Pre = Pre {
    names: &[],
    form: None,
    regexes: &[],
    ignore_merges: IgnoreMerges::Never,
    add_bos: false,
};

pub(super) const GPT_2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const QWEN_35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const BAILING: &str = concat!(
    r"(?i:'s|'d|'m|'t|'ll|'ve|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
);
const SEED_CODER: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const GPT_4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Does not split contractions, because Turkish attaches suffixes with apostrophes.
const UFAKZEKA: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Splits runs of spaces into powers of two.
const JAIS_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)",
    r"|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
);
/// Words may contain single spaces.
const EXAONE_MOE: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
);
/// Like `gpt-4o`, with single digits.
const YOUTU: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Runs of one East Asian script, and their punctuation.
const YOUTU_SCRIPTS: &str = concat!(
    r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+",
    r"|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
);
/// Like `gpt-4o`, with runs of ideographs as words.
const KIMI_K2: &str = concat!(
    r"[\p{Han}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Groups of three digits from the end of a number.
const TINY_AYA_DIGITS: &str = r"\d{1,3}(?=(?:\d{3})*\b)";
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const DEEPSEEK_3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Ideographs and kana.
const CJK_KANA: &str = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+";
const CJK_HANGUL: &str = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// The cased letters of `deepseek-llm`, as code points because several look like ASCII letters.
const DEEPSEEK_LETTERS: &str = "\\s?[\
     A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\
     \u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\
     \u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\
     \u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\
     \u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\
     \u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\
     \u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\
     \u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\
     \u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\
     \u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\
     \u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\
     \u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\
     \u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\
     \u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\
     \u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\
     \u{1e900}-\u{1e943}]+";
const DEEPSEEK_MARKS: &str =
    r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+";

/// All known pre-tokenizers.
static ROWS: &[Pre] = &[
    Pre {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "mpt",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        regexes: &[GPT_2],
        ..DEFAULT
    },
    Pre {
        names: &["olmo", "modern-bert"],
        form: Some(NormalizationForm::Nfc),
        regexes: &[GPT_2],
        ..DEFAULT
    },
    Pre {
        names: &["default"],
        regexes: &[r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..DEFAULT
    },
    Pre {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        regexes: &[LLAMA_3],
        ignore_merges: IgnoreMerges::Always,
        add_bos: true,
        ..DEFAULT
    },
    Pre {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        regexes: &[LLAMA_3],
        ..DEFAULT
    },
    Pre {
        names: &["glm4", "glm5"],
        regexes: &[LLAMA_3],
        ignore_merges: IgnoreMerges::Always,
        ..DEFAULT
    },
    Pre {
        names: &["qwen2"],
        form: Some(NormalizationForm::Nfc),
        regexes: &[QWEN_2],
        ..DEFAULT
    },
    Pre {
        names: &[
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        regexes: &[QWEN_2],
        ..DEFAULT
    },
    Pre {
        names: &["qwen35"],
        form: Some(NormalizationForm::Nfc),
        regexes: &[QWEN_35],
        ..DEFAULT
    },
    Pre {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        regexes: &[r"\p{N}", GPT_2],
        ..DEFAULT
    },
    Pre {
        names: &["command-r"],
        form: Some(NormalizationForm::Nfc),
        regexes: &[r"\p{N}", GPT_2],
        ..DEFAULT
    },
    Pre {
        names: &["falcon"],
        regexes: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT_2, "[0-9][0-9][0-9]"],
        ..DEFAULT
    },
    Pre {
        names: &["deepseek-llm"],
        regexes: &[
            "[\r\n]",
            DEEPSEEK_LETTERS,
            DEEPSEEK_MARKS,
            r"\s+$",
            CJK_HANGUL,
            // llama.cpp keeps numbers whole here; the vocabulary has tokens of single digits only.
            r"\p{N}",
        ],
        ..DEFAULT
    },
    Pre {
        names: &["deepseek-coder"],
        regexes: &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_HANGUL, r"\p{N}"],
        ..DEFAULT
    },
    Pre {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        regexes: &[r"\p{N}{1,3}", CJK_KANA, DEEPSEEK_3],
        ..DEFAULT
    },
    Pre {
        names: &["kanana2", "talkie", "minimax-m2"],
        regexes: &[GPT_4O],
        ..DEFAULT
    },
    Pre {
        names: &["tiny_aya", "cohere2moe"],
        regexes: &[TINY_AYA_DIGITS, GPT_4O],
        ..DEFAULT
    },
    Pre {
        names: &["gpt-4o", "llama4", "granite-embed-multi-97m"],
        regexes: &[GPT_4O],
        ignore_merges: IgnoreMerges::Always,
        ..DEFAULT
    },
    Pre {
        names: &["youtu"],
        regexes: &[YOUTU_SCRIPTS, YOUTU],
        ignore_merges: IgnoreMerges::Always,
        ..DEFAULT
    },
    Pre {
        names: &["kimi-k2"],
        regexes: &[KIMI_K2],
        ..DEFAULT
    },
    Pre {
        names: &["superbpe"],
        regexes: &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
        ..DEFAULT
    },
    Pre {
        names: &["jais-2"],
        regexes: &[JAIS_2],
        ..DEFAULT
    },
    Pre {
        names: &["ufakzeka"],
        regexes: &[UFAKZEKA],
        ..DEFAULT
    },
    Pre {
        names: &["laguna"],
        regexes: &[r"\n+", QWEN_2],
        ..DEFAULT
    },
    Pre {
        names: &["exaone-moe"],
        regexes: &[EXAONE_MOE],
        ..DEFAULT
    },
    Pre {
        names: &["spark2_5"],
        regexes: &[r"\p{N}{1,3}", CJK_KANA, SPARK, r"\p{N}"],
        ..DEFAULT
    },
    Pre {
        names: &["chameleon"],
        regexes: &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            "([\t\n]|    |  )",
            r"\p{N}",
            bert::PUNCTUATION,
            GPT_2,
        ],
        add_bos: true,
        ..DEFAULT
    },
    Pre {
        // llama.cpp splits `pixtral` as `llama-bpe`, the model's own files as Tekken.
        names: &["tekken", "pixtral"],
        regexes: &[TEKKEN],
        ignore_merges: IgnoreMerges::Always,
        add_bos: true,
        ..DEFAULT
    },
    Pre {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        regexes: &[BAILING],
        ..DEFAULT
    },
    Pre {
        names: &["seed-coder"],
        regexes: &[SEED_CODER],
        ..DEFAULT
    },
    Pre {
        names: &["minicpm5"],
        regexes: &[r"\p{N}{1,3}", LLAMA_3],
        ignore_merges: IgnoreMerges::Always,
        ..DEFAULT
    },
    Pre {
        names: &["poro-chat", "bloom", "gpt3-finnish"],
        regexes: &[BLOOM],
        ..DEFAULT
    },
    Pre {
        names: &["viking"],
        regexes: &[BLOOM, r"\p{N}"],
        ..DEFAULT
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Deadline;
    use crate::steps::{Position, pre_tokenize};
    use serde_json::Value;
    use std::collections::HashSet;
    use tabla_core::error::ErrorKind;

    #[test]
    fn missing_name_selects_llama_3_by_vocabulary_size_or_gpt_2() {
        assert_eq!(find(None, 128_256).unwrap().0, "llama-bpe");
        assert_eq!(find(None, 50_257).unwrap().0, "gpt-2");
        assert_eq!(
            find(Some("llama3"), 1).unwrap().1.ignore_merges,
            IgnoreMerges::Always
        );
    }

    #[test]
    fn rejects_unknown_name() {
        let error = find(Some("kimi-k9"), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error
                .message()
                .contains("unknown pre-tokenizer \"kimi-k9\"; known pre-tokenizers: gpt-2"),
            "{error}"
        );
    }

    /// Compares the words of random texts with those of Hugging Face's library.
    #[test]
    fn splits_like_hugging_face() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tokenizers");
        let file = std::fs::read_to_string(format!("{folder}/pre_tokenizers.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let texts = file["texts"].as_array().unwrap();
        let names = file["names"].as_object().unwrap();
        assert!(texts.len() >= 40 && names.len() >= 22);
        for (name, same) in names {
            let (_, pre) = find(Some(name), 1).unwrap();
            let steps = pre.steps().unwrap();
            for (text, expected) in texts
                .iter()
                .zip(file["words"][same.as_str().unwrap()].as_array().unwrap())
            {
                let text = text.as_str().unwrap();
                let mut words = Vec::new();
                let deadline = Deadline::start(text.len());
                let split = pre_tokenize(&steps, text, Position::Start, deadline, |word| {
                    words.push(Value::from(word.chars().count()));
                    Ok(())
                });
                split.unwrap();
                assert_eq!(&Value::from(words), expected, "{name} {text:?}");
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for name in ROWS.iter().flat_map(|row| row.names) {
            assert!(seen.insert(name), "{name} twice");
        }
    }
}
