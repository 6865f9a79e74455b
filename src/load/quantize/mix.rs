//! Mixes: which storage type each tensor of a file gets.
//!
//! The rules and the numbers of `general.file_type` are llama.cpp's (`llama_tensor_get_type_impl`
//! of llama-quant.cpp, `enum llama_ftype` of llama.h), so that a name means the same file.

use super::stored::Stored;
use crate::dtype::DType;
use crate::format::{Importance, Metadata, TensorType};
use std::collections::BTreeSet;

/// A named choice of storage types.
#[derive(Debug)]
pub struct Mix {
    /// The name, as users of llama.cpp know it.
    pub name: &'static str,
    /// `general.file_type`.
    pub(super) file_type: u32,
    /// The type of every matrix that no rule speaks of.
    pub(super) base: DType,
    /// The first that holds decides.
    rules: &'static [Rule],
}

/// Which tensors, when, and what they become.
type Rule = (Role, When, DType);

/// What a matrix does, as far as its type depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Embedding,
    Output,
    Value,
    Key,
    Attention,
    Down,
    Other,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    /// In the first and the last eighth of the layers, and in every third between.
    Spread,
    /// In the first layers.
    First(usize),
    /// In the first of so many parts of the layers.
    Part(usize),
    /// In the first eighth, with importance or without.
    Eighth {
        importance: bool,
    },
    /// Where four heads and more share a key and a value.
    Grouped,
    /// In 80 layers with shared keys and values, which make these matrices small.
    Grouped80,
    /// In models of eight experts.
    EightExperts,
}

use DType::{Bf16, F16, F32, I2S, Iq4Nl, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use DType::{Tq1_0, Tq2_0};
use Role::{Attention, Down, Embedding, Key, Output, Value};
use When::{Always, EightExperts, Eighth, First, Grouped, Grouped80, Part, Spread};

pub(super) const OUTPUT_MATRIX: &str = "output.weight";
pub(super) const EMBEDDING: &str = "token_embd.weight";

const OUTPUT: Rule = (Output, Always, Q6K);
const KEY_8: Rule = (Key, EightExperts, Q8_0);
const VALUE_8: Rule = (Value, EightExperts, Q8_0);
const ATTENTION_8: Rule = (Attention, EightExperts, Q5K);

/// The mixes, the largest files first.
#[rustfmt::skip]
pub const MIXES: &[Mix] = &[
    Mix { name: "F32", file_type: 0, base: F32, rules: &[] },
    Mix { name: "F16", file_type: 1, base: F16, rules: &[] },
    Mix { name: "BF16", file_type: 32, base: Bf16, rules: &[] },
    Mix { name: "Q8_0", file_type: 7, base: Q8_0, rules: &[] },
    Mix { name: "Q6_K", file_type: 18, base: Q6K, rules: &[KEY_8, VALUE_8] },
    Mix { name: "Q5_1", file_type: 9, base: Q5_1, rules: &[OUTPUT, KEY_8, VALUE_8] },
    Mix { name: "Q5_K_M", file_type: 17, base: Q5K, rules: &[
        OUTPUT, KEY_8, VALUE_8, (Value, Spread, Q6K), (Down, Spread, Q6K),
    ] },
    Mix { name: "Q5_K_S", file_type: 16, base: Q5K, rules: &[OUTPUT, KEY_8, VALUE_8] },
    Mix { name: "Q5_0", file_type: 8, base: Q5_0, rules: &[
        OUTPUT, KEY_8, VALUE_8, (Down, Eighth { importance: true }, Q5_1),
    ] },
    Mix { name: "Q4_1", file_type: 3, base: Q4_1, rules: &[OUTPUT, KEY_8, VALUE_8] },
    Mix { name: "Q4_K_M", file_type: 15, base: Q4K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, Spread, Q6K), (Value, Grouped80, Q5K), (Down, Spread, Q6K),
    ] },
    Mix { name: "Q4_K_S", file_type: 14, base: Q4K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, First(4), Q5K), (Value, Grouped80, Q5K), (Down, Part(8), Q5K),
    ] },
    Mix { name: "IQ4_NL", file_type: 25, base: Iq4Nl, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, Grouped, Q5K), (Down, Eighth { importance: false }, Q5K),
    ] },
    Mix { name: "Q4_0", file_type: 2, base: Q4_0, rules: &[
        OUTPUT, KEY_8, VALUE_8, (Down, Eighth { importance: true }, Q4_1),
    ] },
    Mix { name: "Q3_K_L", file_type: 13, base: Q3K, rules: &[
        OUTPUT, KEY_8, VALUE_8,
        (Value, Always, Q5K), (Down, Always, Q5K), (Attention, Always, Q5K),
    ] },
    Mix { name: "Q3_K_M", file_type: 12, base: Q3K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, First(2), Q5K), (Value, Grouped80, Q5K), (Value, Always, Q4K),
        (Down, Part(16), Q5K), (Down, Always, Q4K), (Attention, Always, Q4K),
    ] },
    Mix { name: "Q3_K_S", file_type: 11, base: Q3K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8, (Value, Grouped80, Q5K),
    ] },
    Mix { name: "Q2_K", file_type: 10, base: Q2K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, Grouped80, Q5K), (Value, Grouped, Q4K), (Value, Always, Q3K),
        (Down, Always, Q3K), (Attention, Always, Q3K),
    ] },
    Mix { name: "TQ2_0", file_type: 37, base: Tq2_0, rules: &[OUTPUT, (Embedding, Always, Q4K)] },
    Mix { name: "TQ1_0", file_type: 36, base: Tq1_0, rules: &[OUTPUT, (Embedding, Always, Q4K)] },
    // The number is that of BitNet's fork of llama.cpp.
    Mix { name: "I2_S", file_type: 40, base: I2S, rules: &[
        (Output, Always, F16), (Embedding, Always, F16),
    ] },
];

/// Other names of mixes.
const ALIASES: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// What takes the place of a type whose blocks do not fit into a row.
const NARROWER: [(DType, DType); 7] = [
    (Q2K, Q4_0),
    (Q3K, Q4_0),
    (Q4K, Q5_0),
    (Q5K, Q5_1),
    (Q6K, Q8_0),
    (Tq1_0, Q4_0),
    (Tq2_0, Q4_0),
];

/// Parts of the names of matrices that are too small or too sensitive to be quantized.
const KEPT: [&str; 12] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "position_embd",
    "token_types.weight",
    "ssm_conv1d",
    "shortconv.conv",
    "time_mix_",
    "attn_rel_b",
    "altup",
    "laurel",
    "per_layer_model_proj",
    ".patch_embd",
];

impl Mix {
    /// The mix of this name, in capitals or not.
    pub fn named(name: &str) -> Option<&'static Self> {
        let alias = ALIASES.iter().find(|(a, _)| a.eq_ignore_ascii_case(name));
        let name = alias.map_or(name, |(_, whole)| whole);
        MIXES.iter().find(|m| m.name.eq_ignore_ascii_case(name))
    }

    /// The mix that is named after a type.
    pub(super) fn of_base(dtype: DType) -> Option<&'static Self> {
        let name = dtype.name();
        MIXES.iter().find(|m| m.name.eq_ignore_ascii_case(name))
    }

    /// The type that the rules give a matrix.
    pub(super) fn choose(&self, tensor: &str, facts: &Facts) -> DType {
        let role = facts.role(tensor);
        let rule = self
            .rules
            .iter()
            .find(|(of, when, _)| *of == role && facts.holds(*when, tensor, role));
        rule.map_or(self.base, |(_, _, dtype)| *dtype)
    }
}

/// The type itself, or what fits a matrix of these rows and columns in its place.
pub(super) fn fitting(dtype: DType, rows: u64, cols: u64) -> DType {
    // Blocks of i2_s run over rows; its readers want rows of whole parts of a block.
    let parts = |d: DType| d != I2S || cols.is_multiple_of(32);
    let fits = |d: DType| parts(d) && TensorType::from(d).bytes(rows, cols).is_some();
    let narrower = NARROWER.iter().find(|(wide, _)| *wide == dtype);
    let narrower = narrower.map_or(dtype, |(_, narrow)| *narrow);
    [dtype, narrower]
        .into_iter()
        .find(|d| fits(*d))
        .unwrap_or(F16)
}

/// Whether a tensor is a matrix that may be quantized.
pub(super) fn is_quantized(name: &str, dims: &[u64]) -> bool {
    let matrix = dims.iter().skip(1).any(|d| *d > 1);
    matrix && name.ends_with("weight") && !KEPT.iter().any(|part| name.contains(part))
}

/// What the rules ask about a model.
#[derive(Debug)]
pub(super) struct Facts {
    layers: usize,
    /// Heads that share a key and a value.
    group: u32,
    experts: u32,
    /// The output matrix: the embedding, where it has none of its own.
    output: &'static str,
    /// The layers that have a matrix of values, which not all have in mixed models.
    with_values: BTreeSet<usize>,
    importance: bool,
}

impl Facts {
    /// The facts of a model; those that its metadata leave out hold no rule.
    pub(super) fn of(
        metadata: &Metadata,
        tensors: &[Stored<'_>],
        importance: Option<&Importance>,
    ) -> Self {
        let arch = metadata.str("general.architecture").ok().flatten();
        let number = |key: &str| {
            let key = format!("{}.{key}", arch.unwrap_or_default());
            // A list has a number for each layer; the largest speaks for the model.
            let one = metadata.u32(&key).ok().flatten();
            one.or_else(|| metadata.u32s(&key).ok()??.into_iter().max())
        };
        let heads = number("attention.head_count").unwrap_or(0);
        let shared = number("attention.head_count_kv").unwrap_or(heads);
        let mut facts = Self {
            layers: number("block_count").unwrap_or(0) as usize,
            group: heads.checked_div(shared).unwrap_or(0),
            experts: number("expert_count").unwrap_or(0),
            output: [OUTPUT_MATRIX, EMBEDDING]
                .into_iter()
                .find(|name| tensors.iter().any(|t| t.name == *name))
                .unwrap_or(OUTPUT_MATRIX),
            with_values: BTreeSet::new(),
            importance: importance.is_some(),
        };
        let values = tensors.iter().map(|t| t.name.as_str());
        let values = values.filter(|name| facts.role(name) == Value);
        facts.with_values = values.filter_map(layer).collect();
        facts
    }

    /// Whether a tensor is the output matrix.
    pub(super) fn is_output(&self, name: &str) -> bool {
        self.role(name) == Output
    }

    fn role(&self, name: &str) -> Role {
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match name {
            _ if name == self.output => Output,
            EMBEDDING | "per_layer_token_embd.weight" => Embedding,
            _ if has(&["attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"]) => Value,
            _ if has(&["attn_k.weight"]) => Key,
            _ if has(&["attn_output.weight"]) => Attention,
            _ if has(&["ffn_down"]) => Down,
            _ => Role::Other,
        }
    }

    fn holds(&self, when: When, tensor: &str, role: Role) -> bool {
        let layer = layer(tensor).unwrap_or(usize::MAX);
        let (at, of) = match role {
            Value => (
                self.with_values.range(..layer).count(),
                self.with_values.len(),
            ),
            _ => (layer, self.layers),
        };
        match when {
            Always => true,
            Spread => at < of / 8 || at >= 7 * of / 8 || (at - of / 8) % 3 == 2,
            First(n) => at < n,
            Part(n) => at < of / n,
            Eighth { importance } => at < of / 8 && importance == self.importance,
            Grouped => self.group >= 4,
            Grouped80 => self.layers == 80 && self.group > 1,
            EightExperts => self.experts == 8,
        }
    }
}

/// The layer in a tensor's name.
fn layer(name: &str) -> Option<usize> {
    let (layer, _) = name.strip_prefix("blk.")?.split_once('.')?;
    layer.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::open_bytes;
    use crate::format::write::Writer;

    /// A model of 16 layers whose heads share in fours.
    fn facts(extra: &str) -> Facts {
        let mut writer = Writer::new();
        writer
            .set("general.architecture", "llama")
            .set("llama.block_count", 16u32)
            .set("llama.attention.head_count", 32u32)
            .list("llama.attention.head_count_kv", &[8u32; 16]);
        for layer in 0..16 {
            let name = format!("blk.{layer}.attn_v.weight");
            writer.tensor(&name, F32, &[1, 1], vec![0; 4]);
        }
        writer.tensor(extra, F32, &[1, 1], vec![0; 4]);
        let file = open_bytes("test", writer.finish().unwrap()).unwrap();
        let tensors = file.tensors.iter();
        let tensors: Vec<_> = tensors
            .map(|t| Stored::of_tensor(&file, t).unwrap())
            .collect();
        Facts::of(&file.metadata, &tensors, None)
    }

    fn layers(mix: &str, tensor: &str, dtype: DType) -> Vec<usize> {
        let (mix, facts) = (Mix::named(mix).unwrap(), facts("output.weight"));
        let name = |layer: &usize| format!("blk.{layer}.{tensor}.weight");
        (0..16)
            .filter(|layer| mix.choose(&name(layer), &facts) == dtype)
            .collect()
    }

    #[test]
    fn layers_get_what_llama_cpp_gives_them() {
        let spread = [0, 1, 4, 7, 10, 13, 14, 15];
        assert_eq!(layers("Q4_K_M", "attn_v", Q6K), spread);
        assert_eq!(layers("q4_k", "ffn_down", Q6K), spread);
        assert_eq!(layers("Q4_K_S", "attn_v", Q5K), [0, 1, 2, 3]);
        assert_eq!(layers("Q4_K_S", "ffn_down", Q5K), [0, 1]);
        assert_eq!(layers("Q3_K_M", "ffn_down", Q5K), [0]);
        assert_eq!(layers("Q3_K_M", "ffn_down", Q4K).len(), 15);
        assert_eq!(layers("Q2_K", "attn_v", Q4K).len(), 16, "heads share");
        assert_eq!(layers("IQ4_NL", "ffn_down", Q5K), [0, 1]);
        assert_eq!(
            layers("Q4_0", "ffn_down", Q4_1).len(),
            0,
            "there is no importance"
        );
        assert_eq!(layers("Q4_K_M", "ffn_up", Q4K).len(), 16);
    }

    #[test]
    fn an_embedding_that_is_the_output_is_kept_fine() {
        let mix = Mix::named("Q4_K_M").unwrap();
        let (tied, own) = (facts("token_embd.weight"), facts("output.weight"));
        assert_eq!(mix.choose("token_embd.weight", &tied), Q6K);
        assert_eq!(mix.choose("token_embd.weight", &own), Q4K);
        assert_eq!(mix.choose("output.weight", &own), Q6K);
    }

    #[test]
    fn rows_that_are_no_whole_blocks_get_another_type() {
        assert_eq!(fitting(Q4K, 3, 512), Q4K);
        assert_eq!(fitting(Q4K, 3, 96), Q5_0);
        assert_eq!(fitting(Q6K, 3, 96), Q8_0);
        assert_eq!(fitting(Q4_0, 3, 40), F16);
        assert_eq!(fitting(I2S, 2, 64), I2S, "its blocks run over rows");
        assert_eq!(fitting(I2S, 1, 64), F16);
    }

    #[test]
    fn vectors_and_small_matrices_are_kept() {
        assert!(is_quantized("blk.0.attn_q.weight", &[64, 64]));
        assert!(is_quantized("blk.0.ffn_up_exps.weight", &[64, 1, 8]));
        assert!(!is_quantized("blk.0.attn_norm.weight", &[64]));
        assert!(!is_quantized("output_norm.weight", &[64, 1]));
        assert!(!is_quantized("blk.0.ffn_gate_inp.weight", &[64, 8]));
        assert!(!is_quantized("blk.0.attn_q.bias", &[64, 2]));
    }

    #[test]
    fn names_are_those_that_people_know() {
        assert_eq!(Mix::named("q8_0").unwrap().file_type, 7);
        assert_eq!(Mix::named("Q3_K").unwrap().name, "Q3_K_M");
        assert!(Mix::named("Q9").is_none());
    }
}
