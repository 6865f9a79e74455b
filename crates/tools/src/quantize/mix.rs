//! Quantization mixes, such as `Q4_K_M`: rules for the storage type of each tensor.
//!
//! The rules and the values of `general.file_type` are llama.cpp's (`llama_tensor_get_type_impl` in
//! llama-quant.cpp, `enum llama_ftype` in llama.h).

use super::source_tensor::SourceTensor;
use crate::dtype::DType;
use crate::format::{Importance, Metadata, TensorType};
use std::collections::BTreeSet;

/// A quantization mix.
#[derive(Debug)]
pub struct QuantMix {
    /// Name in llama.cpp.
    pub name: &'static str,
    /// `general.file_type`.
    pub(super) file_type: u32,
    /// Type of matrices without a matching rule.
    pub(super) base: DType,
    /// Rules; the first match applies.
    rules: &'static [Rule],
}

/// Role of the tensor, condition, resulting type.
type Rule = (Role, Condition, DType);

/// Role of a matrix.
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
enum Condition {
    Always,
    /// The first and the last eighth of the layers, and every third layer between.
    Spread,
    /// The first `n` layers.
    First(usize),
    /// The first `1 / n` of the layers.
    Part(usize),
    /// The first eighth of the layers, only with or only without an importance matrix.
    Eighth {
        importance: bool,
    },
    /// Grouped-query attention with at least four query heads per key-value head.
    Grouped,
    /// Grouped-query attention in models of 80 layers.
    Grouped80,
    /// Models with eight experts.
    EightExperts,
}

use Condition::{Always, EightExperts, Eighth, First, Grouped, Grouped80, Part, Spread};
use DType::{Bf16, F16, F32, I2S, Iq4Nl, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use DType::{Q1_0, Q2_0, Tq1_0, Tq2_0};
use Role::{Attention, Down, Embedding, Key, Output, Value};

pub(super) const OUTPUT_MATRIX: &str = "output.weight";
pub(super) const EMBEDDING: &str = "token_embd.weight";

const OUTPUT: Rule = (Output, Always, Q6K);
const KEY_8: Rule = (Key, EightExperts, Q8_0);
const VALUE_8: Rule = (Value, EightExperts, Q8_0);
const ATTENTION_8: Rule = (Attention, EightExperts, Q5K);

/// All quantization mixes, in descending order of file size.
#[rustfmt::skip]
pub const QUANT_MIXES: &[QuantMix] = &[
    QuantMix { name: "F32", file_type: 0, base: F32, rules: &[] },
    QuantMix { name: "F16", file_type: 1, base: F16, rules: &[] },
    QuantMix { name: "BF16", file_type: 32, base: Bf16, rules: &[] },
    QuantMix { name: "Q8_0", file_type: 7, base: Q8_0, rules: &[] },
    QuantMix { name: "Q6_K", file_type: 18, base: Q6K, rules: &[KEY_8, VALUE_8] },
    QuantMix { name: "Q5_1", file_type: 9, base: Q5_1, rules: &[OUTPUT, KEY_8, VALUE_8] },
    QuantMix { name: "Q5_K_M", file_type: 17, base: Q5K, rules: &[
        OUTPUT, KEY_8, VALUE_8, (Value, Spread, Q6K), (Down, Spread, Q6K),
    ] },
    QuantMix { name: "Q5_K_S", file_type: 16, base: Q5K, rules: &[OUTPUT, KEY_8, VALUE_8] },
    QuantMix { name: "Q5_0", file_type: 8, base: Q5_0, rules: &[
        OUTPUT, KEY_8, VALUE_8, (Down, Eighth { importance: true }, Q5_1),
    ] },
    QuantMix { name: "Q4_1", file_type: 3, base: Q4_1, rules: &[OUTPUT, KEY_8, VALUE_8] },
    QuantMix { name: "Q4_K_M", file_type: 15, base: Q4K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, Spread, Q6K), (Value, Grouped80, Q5K), (Down, Spread, Q6K),
    ] },
    QuantMix { name: "Q4_K_S", file_type: 14, base: Q4K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, First(4), Q5K), (Value, Grouped80, Q5K), (Down, Part(8), Q5K),
    ] },
    QuantMix { name: "IQ4_NL", file_type: 25, base: Iq4Nl, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, Grouped, Q5K), (Down, Eighth { importance: false }, Q5K),
    ] },
    QuantMix { name: "Q4_0", file_type: 2, base: Q4_0, rules: &[
        OUTPUT, KEY_8, VALUE_8, (Down, Eighth { importance: true }, Q4_1),
    ] },
    QuantMix { name: "Q3_K_L", file_type: 13, base: Q3K, rules: &[
        OUTPUT, KEY_8, VALUE_8,
        (Value, Always, Q5K), (Down, Always, Q5K), (Attention, Always, Q5K),
    ] },
    QuantMix { name: "Q3_K_M", file_type: 12, base: Q3K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, First(2), Q5K), (Value, Grouped80, Q5K), (Value, Always, Q4K),
        (Down, Part(16), Q5K), (Down, Always, Q4K), (Attention, Always, Q4K),
    ] },
    QuantMix { name: "Q3_K_S", file_type: 11, base: Q3K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8, (Value, Grouped80, Q5K),
    ] },
    QuantMix { name: "Q2_K", file_type: 10, base: Q2K, rules: &[
        OUTPUT, KEY_8, VALUE_8, ATTENTION_8,
        (Value, Grouped80, Q5K), (Value, Grouped, Q4K), (Value, Always, Q3K),
        (Down, Always, Q3K), (Attention, Always, Q3K),
    ] },
    QuantMix { name: "Q2_0", file_type: 41, base: Q2_0, rules: &[OUTPUT, (Embedding, Always, Q4K)] },
    QuantMix { name: "TQ2_0", file_type: 37, base: Tq2_0, rules: &[OUTPUT, (Embedding, Always, Q4K)] },
    QuantMix { name: "TQ1_0", file_type: 36, base: Tq1_0, rules: &[OUTPUT, (Embedding, Always, Q4K)] },
    // The number of BitNet's fork of llama.cpp, which is that of Q1_0 in llama.cpp.
    QuantMix { name: "I2_S", file_type: 40, base: I2S, rules: &[
        (Output, Always, F16), (Embedding, Always, F16),
    ] },
    QuantMix { name: "Q1_0", file_type: 40, base: Q1_0, rules: &[OUTPUT] },
];

/// Aliases of mixes.
const ALIASES: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Replacements of types whose block size does not divide the row length.
const FALLBACKS: [(DType, DType); 8] = [
    (Q2K, Q4_0),
    (Q3K, Q4_0),
    (Q4K, Q5_0),
    (Q5K, Q5_1),
    (Q6K, Q8_0),
    (Q2_0, Q4_0),
    (Tq1_0, Q4_0),
    (Tq2_0, Q4_0),
];

/// Name parts of matrices that are not quantized because they are small or sensitive.
const UNQUANTIZED: [&str; 12] = [
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

impl QuantMix {
    /// Returns the mix with this name, ignoring case.
    pub fn named(name: &str) -> Option<&'static Self> {
        let alias = ALIASES.iter().find(|(a, _)| a.eq_ignore_ascii_case(name));
        let name = alias.map_or(name, |(_, full)| full);
        QUANT_MIXES
            .iter()
            .find(|m| m.name.eq_ignore_ascii_case(name))
    }

    /// Returns the mix with the name of a storage type.
    pub(super) fn of_base(dtype: DType) -> Option<&'static Self> {
        let name = dtype.name();
        QUANT_MIXES
            .iter()
            .find(|m| m.name.eq_ignore_ascii_case(name))
    }

    /// Returns the type of a matrix.
    pub(super) fn choose(&self, tensor: &str, traits: &ModelTraits) -> DType {
        let role = traits.role(tensor);
        let rule = self
            .rules
            .iter()
            .find(|(of, condition, _)| *of == role && traits.matches(*condition, tensor, role));
        rule.map_or(self.base, |(_, _, dtype)| *dtype)
    }
}

/// Returns the type, or its replacement if it does not fit a matrix of this shape.
pub(super) fn fitting(dtype: DType, rows: u64, cols: u64) -> DType {
    // Blocks of i2_s span rows, but kernels need rows of a multiple of 32 columns.
    let row_fits = |d: DType| d != I2S || cols.is_multiple_of(32);
    let fits = |d: DType| row_fits(d) && TensorType::from(d).bytes(rows, cols).is_some();
    let fallback = FALLBACKS.iter().find(|(wide, _)| *wide == dtype);
    let fallback = fallback.map_or(dtype, |(_, narrow)| *narrow);
    [dtype, fallback]
        .into_iter()
        .find(|d| fits(*d))
        .unwrap_or(F16)
}

/// As [`fitting`], for a ternary matrix, whose values other types than the ternary ones change.
pub(super) fn fitting_ternary(dtype: DType, rows: u64, cols: u64) -> DType {
    match fitting(dtype, rows, cols) {
        to if to != dtype && [Tq1_0, Tq2_0].contains(&dtype) => fitting(I2S, rows, cols),
        to => to,
    }
}

/// Returns whether a tensor is a matrix to quantize.
pub(super) fn is_quantized(name: &str, dims: &[u64]) -> bool {
    let matrix = dims.iter().skip(1).any(|d| *d > 1);
    matrix && name.ends_with("weight") && !UNQUANTIZED.iter().any(|part| name.contains(part))
}

/// Properties of a model that the rules depend on.
#[derive(Debug)]
pub(super) struct ModelTraits {
    layers: usize,
    /// Query heads per key-value head.
    group: u32,
    experts: u32,
    /// Name of the output projection, which is the embedding in tied models.
    output: &'static str,
    /// Layers with a V matrix; hybrid models have layers without one.
    value_layers: BTreeSet<usize>,
    importance: bool,
}

impl ModelTraits {
    /// Reads the traits of a model. Conditions on missing keys do not match.
    pub(super) fn of(
        metadata: &Metadata,
        tensors: &[SourceTensor<'_>],
        importance: Option<&Importance>,
    ) -> Self {
        let arch = metadata.str("general.architecture").ok().flatten();
        let number = |key: &str| {
            let key = format!("{}.{key}", arch.unwrap_or_default());
            // Of a list with a number for each layer, the largest counts.
            let scalar = metadata.u32(&key).ok().flatten();
            scalar.or_else(|| metadata.u32s(&key).ok()??.into_iter().max())
        };
        let heads = number("attention.head_count").unwrap_or(0);
        let kv_heads = number("attention.head_count_kv").unwrap_or(heads);
        let mut traits = Self {
            layers: number("block_count").unwrap_or(0) as usize,
            group: heads.checked_div(kv_heads).unwrap_or(0),
            experts: number("expert_count").unwrap_or(0),
            output: [OUTPUT_MATRIX, EMBEDDING]
                .into_iter()
                .find(|name| tensors.iter().any(|t| t.name == *name))
                .unwrap_or(OUTPUT_MATRIX),
            value_layers: BTreeSet::new(),
            importance: importance.is_some(),
        };
        let values = tensors.iter().map(|t| t.name.as_str());
        let values = values.filter(|name| traits.role(name) == Value);
        traits.value_layers = values.filter_map(layer).collect();
        traits
    }

    /// Returns whether a tensor is the output projection.
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

    fn matches(&self, condition: Condition, tensor: &str, role: Role) -> bool {
        let layer = layer(tensor).unwrap_or(usize::MAX);
        let (index, count) = match role {
            Value => (
                self.value_layers.range(..layer).count(),
                self.value_layers.len(),
            ),
            _ => (layer, self.layers),
        };
        match condition {
            Always => true,
            Spread => index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2,
            First(n) => index < n,
            Part(n) => index < count / n,
            Eighth { importance } => index < count / 8 && importance == self.importance,
            Grouped => self.group >= 4,
            Grouped80 => self.layers == 80 && self.group > 1,
            EightExperts => self.experts == 8,
        }
    }
}

/// Returns the layer index in a tensor name.
fn layer(name: &str) -> Option<usize> {
    let (layer, _) = name.strip_prefix("blk.")?.split_once('.')?;
    layer.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::open_bytes;
    use crate::format::write::Writer;

    /// A model with 16 layers and four query heads per key-value head.
    fn traits(extra: &str) -> ModelTraits {
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
            .map(|t| SourceTensor::of_tensor(&file, t).unwrap())
            .collect();
        ModelTraits::of(&file.metadata, &tensors, None)
    }

    fn layers(mix: &str, tensor: &str, dtype: DType) -> Vec<usize> {
        let (mix, traits) = (QuantMix::named(mix).unwrap(), traits("output.weight"));
        let name = |layer: &usize| format!("blk.{layer}.{tensor}.weight");
        (0..16)
            .filter(|layer| mix.choose(&name(layer), &traits) == dtype)
            .collect()
    }

    #[test]
    fn layer_rules_match_llama_cpp() {
        let spread = [0, 1, 4, 7, 10, 13, 14, 15];
        assert_eq!(layers("Q4_K_M", "attn_v", Q6K), spread);
        assert_eq!(layers("q4_k", "ffn_down", Q6K), spread);
        assert_eq!(layers("Q4_K_S", "attn_v", Q5K), [0, 1, 2, 3]);
        assert_eq!(layers("Q4_K_S", "ffn_down", Q5K), [0, 1]);
        assert_eq!(layers("Q3_K_M", "ffn_down", Q5K), [0]);
        assert_eq!(layers("Q3_K_M", "ffn_down", Q4K).len(), 15);
        assert_eq!(
            layers("Q2_K", "attn_v", Q4K).len(),
            16,
            "grouped-query attention"
        );
        assert_eq!(layers("IQ4_NL", "ffn_down", Q5K), [0, 1]);
        assert_eq!(
            layers("Q4_0", "ffn_down", Q4_1).len(),
            0,
            "no importance matrix"
        );
        assert_eq!(layers("Q4_K_M", "ffn_up", Q4K).len(), 16);
    }

    #[test]
    fn tied_embedding_gets_the_type_of_the_output() {
        let mix = QuantMix::named("Q4_K_M").unwrap();
        let (tied, untied) = (traits("token_embd.weight"), traits("output.weight"));
        assert_eq!(mix.choose("token_embd.weight", &tied), Q6K);
        assert_eq!(mix.choose("token_embd.weight", &untied), Q4K);
        assert_eq!(mix.choose("output.weight", &untied), Q6K);
    }

    #[test]
    fn rows_that_do_not_fit_blocks_get_a_fallback_type() {
        assert_eq!(fitting(Q4K, 3, 512), Q4K);
        assert_eq!(fitting(Q4K, 3, 96), Q5_0);
        assert_eq!(fitting(Q6K, 3, 96), Q8_0);
        assert_eq!(fitting(Q4_0, 3, 40), F16);
        assert_eq!(fitting(I2S, 2, 64), I2S, "blocks span rows");
        assert_eq!(fitting(I2S, 1, 64), F16);
    }

    #[test]
    fn vectors_and_small_matrices_are_not_quantized() {
        assert!(is_quantized("blk.0.attn_q.weight", &[64, 64]));
        assert!(is_quantized("blk.0.ffn_up_exps.weight", &[64, 1, 8]));
        assert!(!is_quantized("blk.0.attn_norm.weight", &[64]));
        assert!(!is_quantized("output_norm.weight", &[64, 1]));
        assert!(!is_quantized("blk.0.ffn_gate_inp.weight", &[64, 8]));
        assert!(!is_quantized("blk.0.attn_q.bias", &[64, 2]));
    }

    #[test]
    fn names_ignore_case_and_resolve_aliases() {
        assert_eq!(QuantMix::named("q8_0").unwrap().file_type, 7);
        assert_eq!(QuantMix::named("Q3_K").unwrap().name, "Q3_K_M");
        assert!(QuantMix::named("Q9").is_none());
    }
}
