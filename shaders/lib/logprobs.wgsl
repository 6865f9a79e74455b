// Log-probabilities of a sampled token and of the most likely tokens, before any sampler.

const LARGEST = 20u;

struct Logprobs {
    token: u32,           // the sampled token
    logprob: f32,
    count: u32,           // number of valid entries below
    tokens: array<u32, LARGEST>,
    logprobs: array<f32, LARGEST>,
}
