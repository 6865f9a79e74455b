//! The field `samplers` of llama.cpp: which samplers apply. Their order is fixed: that with which the model was loaded.

use super::sampling_fields::SamplingFields;
use crate::http::error::{ApiError, ApiResult};
use serde_json::Value;
use tabla::Sampling;
use tabla::op::sampler::SamplerKind;

/// Sampler of llama.cpp that editors list in every request and that has no effect here: it joins tokens with the same
/// beginning.
const INFILL: (&str, char) = ("infill", 'i');

/// Second name of the sampler `typ_p`: that of its parameter.
const TYPICAL: &str = "typical_p";

/// The samplers with which a model was loaded, in the order in which they apply.
pub(crate) struct Samplers(Vec<SamplerKind>);

impl Samplers {
    /// Returns the samplers of these kinds; `None`: all.
    pub(crate) fn new(kinds: Option<&[SamplerKind]>) -> Self {
        Self(kinds.unwrap_or(SamplerKind::DEFAULT).to_vec())
    }

    /// Returns the names of the samplers of a request.
    pub(crate) fn listed(&self, listed: Option<&Value>) -> ApiResult<Vec<&'static str>> {
        let kinds = self.kinds(listed)?;
        Ok(kinds.into_iter().map(SamplerKind::name).collect())
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
        for kind in SamplerKind::DEFAULT.iter().copied() {
            let is_loaded = self.0.contains(&kind);
            // The likeliest token needs no sampler.
            let is_greedy = kind == SamplerKind::Temperature && sampling.temperature == 0.0;
            if kinds.contains(&kind) || (!is_loaded && is_greedy) {
                continue;
            }
            let before = selected;
            switch_off(kind, &mut selected);
            let enabled = given(kind, fields).filter(|_| !is_loaded && selected != before);
            if let Some(field) = enabled {
                return Err(ApiError::field(field, self.missing(kind)));
            }
        }
        Ok(selected)
    }

    /// Returns the message for a sampler with which the model was not loaded.
    fn missing(&self, kind: SamplerKind) -> String {
        format!(
            "the server does not have the sampler {}: its option --samplers is {:?}",
            kind.name(),
            names(&self.0, ";")
        )
    }

    /// Returns the samplers of a request.
    fn kinds(&self, listed: Option<&Value>) -> ApiResult<Vec<SamplerKind>> {
        let Some(listed) = listed else {
            return Ok(self.0.clone());
        };
        let kinds = parse(listed)?;
        let places = kinds.iter().map(|kind| {
            let place = self.0.iter().position(|other| other == kind);
            place.ok_or_else(|| ApiError::field("samplers", self.missing(*kind)))
        });
        let places: Vec<usize> = places.collect::<ApiResult<_>>()?;
        if !places.is_sorted_by(|a, b| a < b) {
            let message = format!("the order is fixed: {}", names(&self.0, ", "));
            return Err(ApiError::field("samplers", message));
        }
        Ok(kinds)
    }
}

/// Returns the letter of a sampler in a string.
fn letter(kind: SamplerKind) -> char {
    match kind {
        SamplerKind::Penalties => 'e',
        SamplerKind::Dry => 'd',
        SamplerKind::TopNSigma => 's',
        SamplerKind::TopK => 'k',
        SamplerKind::Typical => 'y',
        SamplerKind::TopP => 'p',
        SamplerKind::MinP => 'm',
        SamplerKind::Xtc => 'x',
        SamplerKind::Temperature => 't',
    }
}

/// Disables a sampler.
fn switch_off(kind: SamplerKind, sampling: &mut Sampling) {
    match kind {
        SamplerKind::Penalties => {
            sampling.repetition_penalty = 1.0;
            sampling.frequency_penalty = 0.0;
            sampling.presence_penalty = 0.0;
        }
        SamplerKind::Dry => sampling.dry_multiplier = 0.0,
        SamplerKind::TopNSigma => sampling.top_n_sigma = 0.0,
        SamplerKind::TopK => sampling.top_k = 0,
        SamplerKind::Typical => sampling.typical_p = 1.0,
        SamplerKind::TopP => sampling.top_p = 1.0,
        SamplerKind::MinP => sampling.min_p = 0.0,
        SamplerKind::Xtc => sampling.xtc_probability = 0.0,
        SamplerKind::Temperature => {
            sampling.temperature = 1.0;
            sampling.dynatemp_range = 0.0;
        }
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

fn names(kinds: &[SamplerKind], separator: &str) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(separator)
}

/// Returns the listed samplers.
fn parse(listed: &Value) -> ApiResult<Vec<SamplerKind>> {
    let find = |name: Value, is_named: &dyn Fn(SamplerKind) -> bool| {
        let mut kinds = SamplerKind::DEFAULT.iter().copied();
        kinds.find(|kind| is_named(*kind)).ok_or_else(|| {
            let known = names(SamplerKind::DEFAULT, ", ");
            let message = format!("unknown sampler {name}, expected {known}");
            ApiError::field("samplers", message)
        })
    };
    match listed {
        Value::String(letters) => letters
            .chars()
            .filter(|name| *name != INFILL.1)
            .map(|name| find(name.to_string().into(), &|kind| letter(kind) == name))
            .collect(),
        Value::Array(names) => names
            .iter()
            .filter(|name| *name != INFILL.0)
            .map(|name| {
                let is_named = |kind: SamplerKind| {
                    kind.name() == name || (kind == SamplerKind::Typical && name == TYPICAL)
                };
                find(name.clone(), &is_named)
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
        let names: Vec<&str> = SamplerKind::DEFAULT
            .iter()
            .map(|kind| kind.name())
            .collect();
        assert_eq!(select(json!(names)), all);
        assert_eq!(select(json!(["typical_p"])), select(json!("y")));
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
