//! Names and types of the parameters of operations, and a description of what the bytes of tables mean.

use super::kind::OpKind;
use super::list::Op;
use super::params::{Bias, KERNELS, Logprobs, PAGE, Row, STATE_BLOCK, Sampler, State};
use super::table::{BIASES_MAX, FEW_TOKENS};
use crate::with_kind;
use std::fmt::Debug;
use std::sync::LazyLock;

/// A parameter: a word of 4 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the shader.
    pub name: String,
    /// Whether it is an f32, otherwise a u32.
    pub is_float: bool,
}

static FIELDS: LazyLock<Vec<Vec<Field>>> = LazyLock::new(|| {
    let default = |op: Op| with_kind!(op, |K| text(&<K as OpKind>::Params::default()));
    Op::ALL.iter().map(|op| parse(&default(*op))).collect()
});

/// Returns the parameters of an operation, in the order of their words.
pub fn fields(op: Op) -> &'static [Field] {
    &FIELDS[op as usize]
}

/// Returns the fields of a struct as text: `Params { tokens: 0, eps: 0.0 }`.
fn text(params: &dyn Debug) -> String {
    format!("{params:?}")
}

/// Parses the text of default values. The only reflection that the generated structs have is [`Debug`].
fn parse(text: &str) -> Vec<Field> {
    let fields = text
        .split_once("{ ")
        .and_then(|(_, rest)| rest.strip_suffix(" }"));
    let fields = fields.into_iter().flat_map(|fields| fields.split(", "));
    let fields = fields.filter_map(|field| field.split_once(": "));
    let field = |(name, value): (&str, &str)| Field {
        name: name.to_string(),
        is_float: value.contains('.'),
    };
    fields.map(field).collect()
}

/// Returns everything that defines the meaning of the bytes of a table: operations with their formulas, operands and
/// parameters, kernels, and the layouts of the buffers that the host shares with them.
pub fn definitions() -> String {
    let mut all = String::new();
    for op in Op::ALL {
        let (formula, operands) = (op.formula(), op.operands());
        all += &format!("{op:?} {formula} {operands:?} {:?}\n", fields(*op));
    }
    all += &format!("{KERNELS:?}\n{PAGE} {STATE_BLOCK} {BIASES_MAX} {FEW_TOKENS}\n");
    let (state, row, sampler) = (State::default(), Row::default(), Sampler::default());
    let (bias, logprobs) = (Bias::default(), Logprobs::default());
    all + &format!("{state:?} {row:?} {sampler:?} {bias:?} {logprobs:?}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::params;

    #[test]
    fn fields_are_the_words_of_the_parameters() {
        for op in Op::ALL {
            assert_eq!(4 * fields(*op).len(), params::bytes(*op), "{}", op.name());
        }
        let names = |op| {
            let fields = fields(op).iter();
            fields
                .map(|f| (f.name.as_str(), f.is_float))
                .collect::<Vec<_>>()
        };
        let norm = [
            ("tokens", false),
            ("groups", false),
            ("dim", false),
            ("eps", true),
        ];
        assert_eq!(names(Op::UnitNorm), norm);
    }

    #[test]
    fn definitions_name_operands_parameters_and_kernels() {
        let all = definitions();
        for part in [
            "k_cache",
            "softcap",
            "subgroup+int8",
            "mirostat_mu",
            "y[r] = W[r, :] . x",
        ] {
            assert!(all.contains(part), "{part}");
        }
    }
}
