//! The field `samplers` of llama.cpp: which samplers apply. Their order is that of llama.cpp by default, and fixed.

use crate::http::error::{ApiError, ApiResult};
use serde_json::Value;
use tabla::Sampling;

/// A sampler, in the order in which they apply.
struct Sampler {
    /// Names in a list.
    names: &'static [&'static str],
    /// Letter in a string.
    letter: char,
    /// Disables it.
    off: fn(&mut Sampling),
}

const SAMPLERS: [Sampler; 9] = [
    Sampler {
        names: &["penalties"],
        letter: 'e',
        off: |s| {
            s.repetition_penalty = 1.0;
            s.frequency_penalty = 0.0;
            s.presence_penalty = 0.0;
        },
    },
    Sampler {
        names: &["dry"],
        letter: 'd',
        off: |s| s.dry_multiplier = 0.0,
    },
    Sampler {
        names: &["top_n_sigma"],
        letter: 's',
        off: |s| s.top_n_sigma = 0.0,
    },
    Sampler {
        names: &["top_k"],
        letter: 'k',
        off: |s| s.top_k = 0,
    },
    Sampler {
        names: &["typ_p", "typical_p"],
        letter: 'y',
        off: |s| s.typical_p = 1.0,
    },
    Sampler {
        names: &["top_p"],
        letter: 'p',
        off: |s| s.top_p = 1.0,
    },
    Sampler {
        names: &["min_p"],
        letter: 'm',
        off: |s| s.min_p = 0.0,
    },
    Sampler {
        names: &["xtc"],
        letter: 'x',
        off: |s| s.xtc_probability = 0.0,
    },
    Sampler {
        names: &["temperature"],
        letter: 't',
        off: |s| {
            s.temperature = 1.0;
            s.dynatemp_range = 0.0;
        },
    },
];

/// Sampler of llama.cpp that editors list in every request and that has no effect here: it joins tokens with the same
/// beginning.
const INFILL: (&str, char) = ("infill", 'i');

/// Returns the names of the samplers of a request.
pub(crate) fn listed(listed: Option<&Value>) -> ApiResult<Vec<&'static str>> {
    match listed {
        None => Ok(names().collect()),
        Some(listed) => {
            let rows = positions(listed)?;
            Ok(rows.into_iter().map(|row| SAMPLERS[row].names[0]).collect())
        }
    }
}

/// Returns the names of the samplers.
fn names() -> impl Iterator<Item = &'static str> {
    SAMPLERS.iter().map(|sampler| sampler.names[0])
}

/// Disables the samplers that a list of names, or a string of letters, lacks. Mirostat replaces all of them.
pub(super) fn select(listed: &Value, sampling: Sampling) -> ApiResult<Sampling> {
    let at = positions(listed)?;
    if !at.is_sorted_by(|a, b| a < b) {
        let names: Vec<&str> = names().collect();
        let message = format!("the order is fixed: {}", names.join(", "));
        return Err(ApiError::field("samplers", message));
    }
    let mut selected = sampling;
    let unlisted = (0..SAMPLERS.len()).filter(|row| !at.contains(row));
    if sampling.mirostat_tau <= 0.0 {
        unlisted.for_each(|row| (SAMPLERS[row].off)(&mut selected));
    }
    Ok(selected)
}

/// Returns the rows of the listed samplers.
fn positions(listed: &Value) -> ApiResult<Vec<usize>> {
    let unknown = |name: Value| {
        let names: Vec<&str> = names().collect();
        let message = format!("unknown sampler {name}, expected {}", names.join(", "));
        ApiError::field("samplers", message)
    };
    match listed {
        Value::String(letters) => letters
            .chars()
            .filter(|letter| *letter != INFILL.1)
            .map(|letter| {
                let row = SAMPLERS.iter().position(|row| row.letter == letter);
                row.ok_or_else(|| unknown(letter.to_string().into()))
            })
            .collect(),
        Value::Array(names) => names
            .iter()
            .filter(|name| *name != INFILL.0)
            .map(|name| {
                let known = |row: &Sampler| row.names.iter().any(|known| *known == name);
                let row = SAMPLERS.iter().position(known);
                row.ok_or_else(|| unknown(name.clone()))
            })
            .collect(),
        _ => Err(ApiError::field(
            "samplers",
            "expected a list of names, or a string of letters",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn samplers_that_are_not_listed_are_off() {
        let all = Sampling::default()
            .dry_multiplier(1.0)
            .repetition_penalty(2.0);
        let select = |listed: Value| select(&listed, all).expect("known samplers");
        assert_eq!(select(json!("edskypmxt")), all);
        let names: Vec<&str> = names().collect();
        assert_eq!(select(json!(names)), all);
        // The list of llama.vim.
        let editor = select(json!(["top_k", "top_p", "infill"]));
        let expected = Sampling::default()
            .min_p(0.0)
            .typical_p(1.0)
            .temperature(1.0);
        assert_eq!(editor, expected.seed(all.seed));
        assert_eq!(select(json!("kp")), editor);
        assert_eq!(select(json!([])).top_k, 0);
    }

    #[test]
    fn mirostat_replaces_them() {
        let all = Sampling::default().mirostat_tau(5.0);
        assert_eq!(select(&json!(["top_k"]), all).expect("known"), all);
    }

    #[test]
    fn errors_quote_names_once() {
        for (listed, expected) in [(json!(["foo"]), "\"foo\""), (json!("z"), "\"z\"")] {
            let error = select(&listed, Sampling::default()).expect_err("unknown");
            let expected = format!("unknown sampler {expected}, expected");
            assert!(error.message.contains(&expected), "{}", error.message);
        }
    }

    #[test]
    fn another_order_and_other_names_are_errors() {
        for listed in [
            json!(["top_p", "top_k"]),
            json!(["top_k", "top_k"]),
            json!("pk"),
            json!(["adaptive_p"]),
            json!("q"),
            json!([1]),
            json!(1),
        ] {
            let error = select(&listed, Sampling::default()).expect_err("invalid");
            assert_eq!(error.param.as_deref(), Some("samplers"), "{listed}");
        }
    }
}
