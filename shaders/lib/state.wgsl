// Step state, updated on the device for each token.

struct Row {
    token: u32,
    position: u32,
    sequence: u32,        // index into the KV cache and the history
    done: u32,            // 0: active, 1: stop token, 2: context full, 3: no finite logit
    token_type: u32,      // encoders: 1 for the second text of a pair
}

// Id of a row whose logits have no finite maximum.
const NO_TOKEN = 0xffffffffu;

struct State {
    active_rows: u32,     // number of active rows; 0 after generation has ended
    step: u32,            // number of sampling passes since generation began
    context: u32,         // context length: positions per sequence in the KV cache
    row: array<Row>,
}
