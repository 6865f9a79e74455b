//! The field `samplers` of llama.cpp: which samplers apply. Their order is fixed: that with which the model was loaded.

use super::sampling_fields::SamplingFields;
use crate::http::error::{ApiError, ApiResult};
use serde_json::Value;
use tabla::Sampling;
use tabla::op::sampler::SamplerKind;

/// A sampler.
struct Sampler {
    kind: SamplerKind,
    /// Names in a list.
    names: &'static [&'static str],
    /// Letter in a string.
    letter: char,
    /// Disables it.
    off: fn(&mut Sampling),
}

const SAMPLERS: [Sampler; 9] = [
    Sampler {
        kind: SamplerKind::Penalties,
        names: &["penalties"],
        letter: 'e',
        off: |s| {
            s.repetition_penalty = 1.0;
            s.frequency_penalty = 0.0;
            s.presence_penalty = 0.0;
        },
    },
    Sampler {
        kind: SamplerKind::Dry,
        names: &["dry"],
        letter: 'd',
        off: |s| s.dry_multiplier = 0.0,
    },
    Sampler {
        kind: SamplerKind::TopNSigma,
        names: &["top_n_sigma"],
        letter: 's',
        off: |s| s.top_n_sigma = 0.0,
    },
    Sampler {
        kind: SamplerKind::TopK,
        names: &["top_k"],
        letter: 'k',
        off: |s| s.top_k = 0,
    },
    Sampler {
        kind: SamplerKind::Typical,
        names: &["typ_p", "typical_p"],
        letter: 'y',
        off: |s| s.typical_p = 1.0,
    },
    Sampler {
        kind: SamplerKind::TopP,
        names: &["top_p"],
        letter: 'p',
        off: |s| s.top_p = 1.0,
    },
    Sampler {
        kind: SamplerKind::MinP,
        names: &["min_p"],
        letter: 'm',
        off: |s| s.min_p = 0.0,
    },
    Sampler {
        kind: SamplerKind::Xtc,
        names: &["xtc"],
        letter: 'x',
        off: |s| s.xtc_probability = 0.0,
    },
    Sampler {
        kind: SamplerKind::Temperature,
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

/// The samplers with which a model was loaded, in the order in which they apply.
pub(crate) struct Samplers(Vec<&'static Sampler>);

impl Samplers {
    /// Returns the samplers of these kinds; `None`: all.
    pub(crate) fn new(kinds: Option<&[SamplerKind]>) -> Self {
        let kinds = kinds.unwrap_or(SamplerKind::DEFAULT).iter();
        let rows = kinds.filter_map(|kind| SAMPLERS.iter().find(|row| row.kind == *kind));
        Self(rows.collect())
    }

    /// Returns the names of the samplers of a request.
    pub(crate) fn listed(&self, listed: Option<&Value>) -> ApiResult<Vec<&'static str>> {
        let kinds = self.kinds(listed)?;
        let rows = kinds
            .iter()
            .filter_map(|kind| SAMPLERS.iter().find(|row| row.kind == *kind));
        Ok(rows.map(|row| row.names[0]).collect())
    }

    /// Disables the samplers with which the model was not loaded, and those that a list of names, or a string of
    /// letters, lacks. Mirostat replaces all of them.
    ///
    /// # Errors
    ///
    /// If a field of the request enables a sampler with which the model was not loaded.
    pub(super) fn select(
        &self,
        listed: Option<&Value>,
        fields: &SamplingFields,
        sampling: Sampling,
    ) -> ApiResult<Sampling> {
        let kinds = self.kinds(listed)?;
        let mut selected = sampling;
        if sampling.mirostat_tau > 0.0 {
            return Ok(selected);
        }
        for row in &SAMPLERS {
            let is_loaded = self.0.iter().any(|other| other.kind == row.kind);
            // The likeliest token needs no sampler.
            let is_greedy = row.kind == SamplerKind::Temperature && sampling.temperature == 0.0;
            if kinds.contains(&row.kind) || (!is_loaded && is_greedy) {
                continue;
            }
            let before = selected;
            (row.off)(&mut selected);
            if let (false, Some(field)) = (is_loaded || selected == before, given(row.kind, fields))
            {
                return Err(ApiError::field(field, self.missing(row.names[0])));
            }
        }
        Ok(selected)
    }

    /// Returns the message for a sampler with which the model was not loaded.
    fn missing(&self, name: &str) -> String {
        let names: Vec<&str> = self.0.iter().map(|row| row.names[0]).collect();
        format!(
            "the server does not have the sampler {name}: its option --samplers is {:?}",
            names.join(";")
        )
    }

    /// Returns the samplers of a request.
    fn kinds(&self, listed: Option<&Value>) -> ApiResult<Vec<SamplerKind>> {
        let Some(listed) = listed else {
            return Ok(self.0.iter().map(|row| row.kind).collect());
        };
        let rows = positions(listed)?;
        let rows: Vec<&Sampler> = rows.into_iter().map(|row| &SAMPLERS[row]).collect();
        let places = rows.iter().map(|row| {
            let place = self.0.iter().position(|other| other.kind == row.kind);
            place.ok_or_else(|| ApiError::field("samplers", self.missing(row.names[0])))
        });
        let places: Vec<usize> = places.collect::<ApiResult<_>>()?;
        if !places.is_sorted_by(|a, b| a < b) {
            let names: Vec<&str> = self.0.iter().map(|row| row.names[0]).collect();
            let message = format!("the order is fixed: {}", names.join(", "));
            return Err(ApiError::field("samplers", message));
        }
        Ok(rows.into_iter().map(|row| row.kind).collect())
    }
}

/// Returns the first field of a request that is a parameter of a sampler and can enable it.
fn given(kind: SamplerKind, fields: &SamplingFields) -> Option<&'static str> {
    let given: &[(&'static str, bool)] = match kind {
        SamplerKind::Penalties => &[
            ("repeat_penalty", fields.repeat_penalty.is_some()),
            ("repetition_penalty", fields.repetition_penalty.is_some()),
            ("frequency_penalty", fields.frequency_penalty.is_some()),
            ("presence_penalty", fields.presence_penalty.is_some()),
        ],
        SamplerKind::Dry => &[("dry_multiplier", fields.dry_multiplier.is_some())],
        SamplerKind::TopNSigma => &[("top_n_sigma", fields.top_n_sigma.is_some())],
        SamplerKind::TopK => &[("top_k", fields.top_k.is_some())],
        SamplerKind::Typical => &[("typical_p", fields.typical_p.is_some())],
        SamplerKind::TopP => &[("top_p", fields.top_p.is_some())],
        SamplerKind::MinP => &[("min_p", fields.min_p.is_some())],
        SamplerKind::Xtc => &[("xtc_probability", fields.xtc_probability.is_some())],
        SamplerKind::Temperature => &[
            ("temperature", fields.temperature.is_some()),
            ("dynatemp_range", fields.dynatemp_range.is_some()),
        ],
    };
    let field = given.iter().find(|(_, is_given)| *is_given);
    field.map(|(name, _)| *name)
}

/// Returns the names of all samplers.
fn names() -> impl Iterator<Item = &'static str> {
    SAMPLERS.iter().map(|sampler| sampler.names[0])
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

    fn select(listed: &Value, sampling: Sampling) -> ApiResult<Sampling> {
        Samplers::new(None).select(Some(listed), &SamplingFields::default(), sampling)
    }

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
    fn requests_have_the_samplers_of_the_model() {
        let samplers = Samplers::new(Some(&[SamplerKind::Temperature, SamplerKind::TopK]));
        let select = |request: Value| {
            let fields: SamplingFields = serde_json::from_value(request.clone()).expect("valid");
            let sampling = fields.sampling().mirostat_tau(0.0);
            samplers.select(request.get("samplers"), &fields, sampling)
        };
        let off = select(json!({})).expect("no samplers");
        assert_eq!((off.top_k, off.top_p, off.min_p), (40, 1.0, 0.0));
        for valid in [
            json!({ "samplers": "tk" }),
            json!({ "samplers": ["temperature"], "top_k": 3 }),
            json!({ "top_p": 1, "dry_multiplier": 0, "top_k": 3 }),
        ] {
            assert!(select(valid.clone()).is_ok(), "{valid}");
        }
        for (invalid, param) in [
            (json!({ "samplers": "kt" }), "samplers"),
            (json!({ "samplers": ["top_p"] }), "samplers"),
            (json!({ "top_p": 0.9 }), "top_p"),
            (json!({ "presence_penalty": 1 }), "presence_penalty"),
        ] {
            let error = select(invalid).expect_err("not loaded");
            assert_eq!(error.param.as_deref(), Some(param));
        }
        let error = select(json!({ "min_p": 0.5 })).expect_err("not loaded");
        assert!(
            error
                .message
                .contains("--samplers is \"temperature;top_k\"")
        );
        let greedy = Samplers::new(Some(&[]));
        let fields = SamplingFields::default();
        let zero = Sampling::default().temperature(0.0);
        let selected = greedy.select(None, &fields, zero).expect("greedy");
        assert_eq!(selected.temperature, 0.0);
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
