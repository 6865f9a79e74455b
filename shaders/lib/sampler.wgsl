// Sampler parameters of a sequence. Their off values and ranges are listed in options/generate.toml; a
// test of xtask compares this struct with the list.

const STOPS = 32u;

struct Sampler {
    seed_lo: u32,
    seed_hi: u32,
    temperature: f32,        // 0: greedy
    dynatemp_range: f32,     // 0: no dynamic temperature
    dynatemp_exponent: f32,
    top_n_sigma: f32,
    top_k: u32,
    typical_p: f32,
    top_p: f32,
    min_p: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    repetition_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    repeat_last_n: u32,      // number of recent tokens that are penalized
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed: u32,        // longest repetition without a penalty
    dry_penalty_last_n: u32, // number of recent tokens that DRY searches
    mirostat_tau: f32,
    mirostat_eta: f32,
    mirostat_mu: f32,        // updated by the device for each token
    logprobs: u32,           // 1: write log-probabilities
    masked: u32,             // 1: apply the mask
    bias_count: u32,
    stop_from: u32,          // first position at which a stop token is allowed
    first: u32,              // position of the first token of a transcript
    initial_timestamps: u32, // number of timestamps that may be this token; 0: no timestamp rules
    stop_count: u32,
    stops: array<u32, STOPS>,
}
