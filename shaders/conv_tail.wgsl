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

fn elements() -> u32 { return params.channels; }

// Inputs 1 to 4 and 5 to 8 positions before the current one.
struct Earlier { a: vec4<f32>, b: vec4<f32> }

// Index of the stored input of a channel at `depth` rows of a block.
fn stored_at(block: u32, depth: u32, position: u32, c: u32) -> u32 {
    return (block * depth + position % depth) * params.channels + c;
}

// The input `j` positions before `start`, if a tap uses it; otherwise 0.
fn stored(block: u32, depth: u32, start: u32, j: u32, c: u32) -> f32 {
    if (j < params.taps && j <= start) {
        return conv_state[stored_at(block, depth, start - j, c)];
    }
    return 0.0;
}

fn store(block: u32, depth: u32, position: u32, j: u32, c: u32, value: f32) {
    if (j < params.taps && j <= position) {
        conv_state[stored_at(block, depth, position - j, c)] = value;
    }
}

// `sum + w x` for the tap `j` positions before the current one, if there is one.
fn tap(sum: f32, j: u32, c: u32, x: f32) -> f32 {
    if (j < params.taps) {
        return sum + w[(params.taps - 1u - j) * params.channels + c] * x;
    }
    return sum;
}

// The latest input comes last, as in the formula.
fn taps(first: f32, e: Earlier, c: u32, last: f32) -> f32 {
    var sum = tap(first, 7u, c, e.b.z);
    sum = tap(sum, 6u, c, e.b.y);
    sum = tap(sum, 5u, c, e.b.x);
    sum = tap(sum, 4u, c, e.a.w);
    sum = tap(sum, 3u, c, e.a.z);
    sum = tap(sum, 2u, c, e.a.y);
    sum = tap(sum, 1u, c, e.a.x);
    return tap(sum, 0u, c, last);
}

fn element(token: u32, c: u32) {
    if (!is_first(token)) {
        return;
    }
    let rows = min(params.tokens, state.active_rows);
    let own = pages_of(state.row[token].sequence);
    let depth = STATE_BLOCK + params.taps - 1u;
    let start = state.row[token].position;
    var e = Earlier();
    if (start > 0u) {
        let block = state_at(own, start - 1u);
        e.a = vec4(
            stored(block, depth, start, 1u, c),
            stored(block, depth, start, 2u, c),
            stored(block, depth, start, 3u, c),
            stored(block, depth, start, 4u, c),
        );
        e.b = vec4(
            stored(block, depth, start, 5u, c),
            stored(block, depth, start, 6u, c),
            stored(block, depth, start, 7u, c),
            0.0,
        );
    }
    for (var t = token; t < rows && (t == token || !is_first(t)); t++) {
        let position = state.row[t].position;
        if (position >= state.context) {
            return;
        }
        let block = state_at(own, position);
        if (position % PAGE == 0u) {
            store(block, depth, position, 1u, c, e.a.x);
            store(block, depth, position, 2u, c, e.a.y);
            store(block, depth, position, 3u, c, e.a.z);
            store(block, depth, position, 4u, c, e.a.w);
            store(block, depth, position, 5u, c, e.b.x);
            store(block, depth, position, 6u, c, e.b.y);
            store(block, depth, position, 7u, c, e.b.z);
        }
        let last = x[t * params.channels + c];
        var first = 0.0;
        if (params.biased != 0u) {
            first = bias[c];
        }
        let sum = taps(first, e, c, last);
        y[t * params.channels + c] = select(sum, silu(sum), params.silu != 0u);
        e = Earlier(vec4(last, e.a.xyz), vec4(e.a.w, e.b.xyz));
        conv_state[stored_at(block, depth, position, c)] = last;
    }
}
