// token = argmax(x), lowest id first; advances the state and appends to the history
//
// x: [vocab] f32; NaN never wins.  history: token by position.  One workgroup; its first lane
// does what comes after the search.

#import state
#import keys

const WG = 256u;
const UNITS = 1u;
const STOPPED = 1u;
const FULL = 2u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> history: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: State;
var<immediate> params: Params;

var<workgroup> best_value: array<f32, WG>;
var<workgroup> best_id: array<u32, WG>;

fn advance(token: u32) {
    state.row[0].token = token;
    state.row[0].position += 1u;
    let position = state.row[0].position;
    if (position < state.context) {
        history[position] = token;
    } else {
        state.done = FULL;
    }
    state.step += 1u;
    for (var i = 0u; i < min(state.stop_count, STOPS); i++) {
        if (state.stops[i] == token) {
            state.done = STOPPED;
        }
    }
    if (state.done != 0u) {
        state.live = 0u;
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
    // Where nothing is over -inf the lowest id wins, and 0 among nothing but NaN.
    var value = minus_inf();
    var id = 0xffffffffu;
    for (var i = lane; i < params.vocab; i += WG) {
        if (x[i] > value || (x[i] == value && id == 0xffffffffu)) {
            value = x[i];
            id = i;
        }
    }
    best_value[lane] = value;
    best_id[lane] = id;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = best_value[lane + half];
            let other_id = best_id[lane + half];
            if (other > best_value[lane] || (other == best_value[lane] && other_id < best_id[lane])) {
                best_value[lane] = other;
                best_id[lane] = other_id;
            }
        }
    }
    if (lane == 0u && state.live != 0u) {
        advance(select(best_id[0], 0u, best_id[0] == 0xffffffffu));
    }
}
