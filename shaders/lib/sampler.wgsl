// How the tokens of a sequence are picked. Parameters, their off values and ranges are listed in
// crates/core/src/op/sampling.rs; the compiler compares this struct with the list.

const STOPS = 32u;

struct Sampler {
    seed_lo: u32,
    seed_hi: u32,
    temperature: f32,        // 0: the largest logit, always
    dynatemp_range: f32,     // 0: the temperature is the same for all rows
    dynatemp_exponent: f32,
    top_n_sigma: f32,
    top_k: u32,
    typical_p: f32,
    top_p: f32,
    min_p: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    repeat_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    repeat_last: u32,        // tokens of the history that are penalised
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed: u32,        // tokens that may be repeated
    dry_last: u32,           // tokens of the history that DRY looks at
    mirostat_tau: f32,
    mirostat_eta: f32,
    mirostat_mu: f32,        // the device moves it from token to token
    log_probs: u32,          // whether they are wanted
    masked: u32,             // whether its mask counts
    bias_count: u32,
    stop_from: u32,          // no stop token is picked for a position in front of this one
    stop_count: u32,
    stops: array<u32, STOPS>,
}
