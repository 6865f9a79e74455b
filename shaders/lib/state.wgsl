// The step state: what changes from token to token, on the device.

const STOPS = 32u;

struct Row {
    token: u32,
    position: u32,
    sequence: u32,        // whose part of the KV cache and of the history it reads and writes
    done: u32,            // 0 running, 1 a stop token was picked, 2 the context is full
}

struct State {
    live: u32,            // rows that count in this pass; 0 once generation has ended
    step: u32,            // passes that picked tokens since generation began
    context: u32,         // positions that the KV cache holds of a sequence
    seed_lo: u32,
    seed_hi: u32,
    temperature: f32,     // over 0
    top_k: u32,           // 0: off
    top_p: f32,           // 1: off
    min_p: f32,           // 0: off
    repeat_penalty: f32,  // 1: off
    repeat_last: u32,     // tokens of the history that are penalised
    stop_count: u32,
    stops: array<u32, STOPS>,
    row: array<Row>,
}
