//! Selects the sampling stage that parameters require.

use super::sampling_options::stage_of_parameters;
use crate::exec::state::STOPS_MAX;
use crate::op::params::Sampler;
use crate::op::sampler::REPEAT_LAST_N_MAX;
use crate::op::table::SamplingStage;

pub use super::sampling_options::Sampling;

/// Minimum positive temperature. Smaller ones are clamped, so that logits divided by it stay
/// finite. The result is still greedy.
const TEMPERATURE_MIN: f32 = 1e-20;

impl Sampling {
    /// Maximum of [`Sampling::repeat_last_n`], in tokens.
    pub const REPEAT_LAST_N_MAX: u32 = REPEAT_LAST_N_MAX;

    /// Returns the parameters that have an effect. With temperature 0 no sampler removes the
    /// likeliest token, and Mirostat replaces all samplers that remove tokens.
    fn effective(self) -> Self {
        let likeliest = self.temperature == 0.0;
        if !likeliest && self.mirostat_tau == 0.0 {
            return self;
        }
        let mut sampling = self.without_filters();
        if likeliest {
            sampling.dynatemp_range = Self::GREEDY.dynatemp_range;
            sampling.mirostat_tau = Self::GREEDY.mirostat_tau;
        }
        sampling
    }

    /// Creates the sampler of the device with at most [`STOPS_MAX`] stop tokens.
    pub(super) fn sampler(&self, stops: &[u32]) -> Sampler {
        let mut sampler = self.effective().parameters();
        sampler.temperature = match sampler.temperature {
            0.0 => 0.0,
            t => t.max(TEMPERATURE_MIN),
        };
        // Initial value of Mirostat.
        sampler.mirostat_mu = 2.0 * sampler.mirostat_tau;
        let count = stops.len().min(STOPS_MAX);
        sampler.stops[..count].copy_from_slice(&stops[..count]);
        sampler.stop_count = u32::try_from(count).expect("at most STOPS_MAX");
        sampler
    }
}

/// Returns the smallest sampling stage that supports this sampler.
pub(super) fn sampling_stage(s: &Sampler) -> SamplingStage {
    let full = s.logprobs != 0 || s.masked != 0 || s.bias_count > 0 || s.stop_from > 0;
    if full {
        SamplingStage::Full
    } else {
        stage_of_parameters(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::state::sampler_off;

    const PLAIN: Sampling = Sampling {
        temperature: 1.0,
        ..Sampling::GREEDY
    };

    #[test]
    fn selects_smallest_sampling_stage() {
        let of = |change: fn(&mut Sampling)| {
            [Sampling::GREEDY, PLAIN].map(|mut sampling| {
                change(&mut sampling);
                sampling_stage(&sampling.sampler(&[]))
            })
        };
        use SamplingStage::{Full, Greedy, Sampled};
        assert_eq!(sampling_stage(&Sampling::default().sampler(&[])), Sampled);
        assert_eq!(of(|_| {}), [Greedy, Sampled]);
        assert_eq!(of(|s| s.frequency_penalty = 0.1), [Sampled, Sampled]);
        assert_eq!(of(|s| s.presence_penalty = 0.1), [Sampled, Sampled]);
        assert_eq!(of(|s| s.top_k = 3), [Greedy, Sampled]);
        assert_eq!(of(|s| s.top_n_sigma = 1.0), [Greedy, Full]);
        assert_eq!(of(|s| s.typical_p = 0.5), [Greedy, Full]);
        assert_eq!(of(|s| s.xtc_probability = 0.5), [Greedy, Full]);
        assert_eq!(of(|s| s.dynatemp_range = 0.5), [Greedy, Full]);
        assert_eq!(of(|s| s.mirostat_tau = 5.0), [Greedy, Full]);
        assert_eq!(of(|s| s.dry_multiplier = 0.8), [Full, Full]);
        let of = |change: fn(&mut Sampler)| {
            let mut sampler = sampler_off();
            change(&mut sampler);
            sampling_stage(&sampler)
        };
        assert_eq!(of(|_| {}), Greedy);
        assert_eq!(of(|s| s.logprobs = 1), Full);
        assert_eq!(of(|s| s.bias_count = 1), Full);
        assert_eq!(of(|s| s.stop_from = 9), Full);
    }

    #[test]
    fn mirostat_replaces_filters_and_greedy_disables_all() {
        let all = Sampling {
            top_n_sigma: 1.0,
            top_k: 5,
            typical_p: 0.5,
            top_p: 0.5,
            min_p: 0.5,
            xtc_probability: 0.5,
            dynatemp_range: 0.5,
            mirostat_tau: 5.0,
            ..PLAIN
        };
        let sampler = all.sampler(&[]);
        let off = Sampler {
            mirostat_tau: 5.0,
            mirostat_mu: 10.0,
            dynatemp_range: 0.5,
            ..PLAIN.sampler(&[])
        };
        assert_eq!(sampler, off);
        let cold = Sampling {
            temperature: 0.0,
            ..all
        };
        assert_eq!(cold.sampler(&[]), Sampling::GREEDY.sampler(&[]));
    }

    #[test]
    fn range_error_names_field() {
        let bad = Sampling {
            xtc_threshold: -0.5,
            ..PLAIN
        };
        let error = bad.check().expect_err("out of range");
        assert_eq!(error.message(), "xtc_threshold -0.5 is outside 0..=1");
        let bad = Sampling {
            dry_base: f32::NAN,
            ..PLAIN
        };
        let error = bad.check().expect_err("out of range");
        assert_eq!(error.message(), "dry_base NaN is outside 1..=100");
        let most = PLAIN.repeat_last_n(Sampling::REPEAT_LAST_N_MAX);
        assert!(most.check().is_ok());
        let over = most.repeat_last_n(Sampling::REPEAT_LAST_N_MAX + 1);
        assert!(over.check().is_err());
    }
}
