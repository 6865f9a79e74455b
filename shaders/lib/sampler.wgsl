// How the tokens of a sequence are picked.

const STOPS = 32u;

struct Sampler {
    seed_lo: u32,
    seed_hi: u32,
    temperature: f32,     // 0: the largest, always
    top_k: u32,           // 0: off
    top_p: f32,           // 1: off
    min_p: f32,           // 0: off
    repeat_penalty: f32,  // 1: off
    repeat_last: u32,     // tokens of the history that are penalised
    stop_count: u32,
    stops: array<u32, STOPS>,
}
