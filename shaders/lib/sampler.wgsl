// How the tokens of a sequence are picked.

const STOPS = 32u;

struct Sampler {
    seed_lo: u32,
    seed_hi: u32,
    temperature: f32,        // 0: the largest, always
    dynatemp_range: f32,     // 0: the temperature is the same for all rows
    dynatemp_exponent: f32,
    top_n_sigma: f32,        // 0: off
    top_k: u32,              // 0: off
    typical_p: f32,          // 1: off
    top_p: f32,              // 1: off
    min_p: f32,              // 0: off
    xtc_probability: f32,    // 0: off
    xtc_threshold: f32,
    repeat_penalty: f32,     // 1: off
    frequency_penalty: f32,  // 0: off
    presence_penalty: f32,   // 0: off
    repeat_last: u32,        // tokens of the history that are penalised
    dry_multiplier: f32,     // 0: off
    dry_base: f32,
    dry_allowed: u32,        // tokens that may be repeated
    dry_last: u32,           // tokens of the history that DRY looks at
    mirostat_tau: f32,       // 0: off
    mirostat_eta: f32,
    mirostat_mu: f32,        // the device moves it from token to token
    log_probs: u32,          // whether they are wanted
    masked: u32,             // whether its mask counts
    bias_count: u32,
    stop_from: u32,          // no stop token is picked for a position in front of this one
    stop_count: u32,
    stops: array<u32, STOPS>,
}
