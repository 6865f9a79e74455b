// What a token was picked from: logarithms of probabilities, before any sampler.

const LARGEST = 20u;

struct LogProbs {
    token: u32,           // the one that was picked
    log_prob: f32,
    count: u32,           // of the largest, those that are there
    tokens: array<u32, LARGEST>,
    log_probs: array<f32, LARGEST>,
}
