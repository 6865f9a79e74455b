// The step state: what changes from token to token, on the device.

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
    row: array<Row>,
}
