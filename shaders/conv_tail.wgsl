// y[t, c] = act(bias[c] + sum_j w[j, c] x[t - taps + 1 + j, c])
//
// x, y: [tokens, channels] f32.  w: [taps, channels] f32; taps is at most 8.
// bias: [channels] f32, if params.biased is not 0.  act is SiLU if params.silu is not 0, else the
// identity.
// conv_state: [states, STATE_BLOCK + taps - 1, channels] f32: the input at position p is row
// p % (STATE_BLOCK + taps - 1).  One lane per channel and sequence, for all of its rows.
// A row whose position is outside the context is unchanged.

#import elements64
#import recurrent
#import activation

struct Params { tokens: u32, channels: u32, taps: u32, silu: u32, biased: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> conv_state: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read> state: State;
var<immediate> params: Params;

const TAPS = 8u;

fn elements() -> u32 { return params.channels; }

fn element(token: u32, c: u32) {
    if (!is_first(token)) {
        return;
    }
    let rows = min(params.tokens, state.active_rows);
    let own = pages_of(state.row[token].sequence);
    let depth = STATE_BLOCK + params.taps - 1u;
    // Earlier inputs, the latest first.
    var earlier: array<f32, TAPS>;
    let start = state.row[token].position;
    for (var j = 1u; j < params.taps && j <= start; j++) {
        let row = state_at(own, start - 1u) * depth + (start - j) % depth;
        earlier[j - 1u] = conv_state[row * params.channels + c];
    }
    for (var t = token; t < rows && (t == token || !is_first(t)); t++) {
        let position = state.row[t].position;
        if (position >= state.context) {
            return;
        }
        let base = state_at(own, position) * depth;
        if (position % PAGE == 0u) {
            for (var j = 1u; j < params.taps && j <= position; j++) {
                conv_state[(base + (position - j) % depth) * params.channels + c] = earlier[j - 1u];
            }
        }
        let last = x[t * params.channels + c];
        var sum = 0.0;
        if (params.biased != 0u) {
            sum = bias[c];
        }
        for (var j = params.taps - 1u; j > 0u; j--) {
            sum += w[(params.taps - 1u - j) * params.channels + c] * earlier[j - 1u];
        }
        sum += w[(params.taps - 1u) * params.channels + c] * last;
        y[t * params.channels + c] = select(sum, silu(sum), params.silu != 0u);
        for (var j = params.taps - 1u; j > 1u; j--) {
            earlier[j - 1u] = earlier[j - 2u];
        }
        earlier[0] = last;
        conv_state[(base + position % depth) * params.channels + c] = last;
    }
}
