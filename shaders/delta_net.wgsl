// S = e^gate S; S += k (beta (v - S^T k))^T; y[t, h, :] = S^T q
//
// x: [tokens, 2 key_heads key_dim + heads value_dim] f32, [q | k | v].  gates: [tokens, 2, heads] f32, [gate | beta].
// y: [tokens, heads, value_dim] f32.  key_dim is at most 128.
// recurrent_state: [states, heads, size] f32; u are the values that the delta rule adds (WY form).
// A lane has columns of S.
// A row whose position is outside the context is unchanged.

#import recurrent
#import state_block

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, key_heads: u32, heads: u32, key_dim: u32, value_dim: u32, interleaved: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read_write> recurrent_state: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// Rows that are processed together, and the maximum key_dim.
const TILE = 8u;
const KEYS = 128u;
// Lanes that sum the squares of a key or a query.
const EACH = WG / (2u * TILE);

// Keys, then queries, of the tile.
var<workgroup> vectors: array<f32, 2u * TILE * KEYS>;
var<workgroup> squares: array<f32, WG>;
// Weights of the values u of the block in each row: for keys, then for queries.
var<workgroup> weights: array<f32, 2u * TILE * STATE_BLOCK>;

// Loads the keys and queries of `count` rows from t on, with unit length, and stores the keys as those of
// the positions of the block from `at` on.
fn load_vectors(t: u32, count: u32, to: vec2<u32>, at: u32, lane: u32) {
    let width = 2u * params.key_heads * params.key_dim + params.heads * params.value_dim;
    let own = lane / EACH;
    let row = own % TILE;
    // Queries precede keys in x.
    let offset = (1u - own / TILE) * params.key_heads * params.key_dim + to.y * params.key_dim;
    var sum = 0.0;
    for (var d = lane % EACH; d < params.key_dim && row < count; d += EACH) {
        let v = x[(t + row) * width + offset + d];
        vectors[own * KEYS + d] = v;
        sum += v * v;
    }
    squares[lane] = sum;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < EACH; i++) {
        total += squares[own * EACH + i];
    }
    let scale = inverseSqrt(total + 1e-6) * select(1.0, inverseSqrt(f32(params.key_dim)), own >= TILE);
    for (var d = lane % EACH; d < params.key_dim && row < count; d += EACH) {
        let v = vectors[own * KEYS + d] * scale;
        vectors[own * KEYS + d] = v;
        if (own < TILE) {
            recurrent_state[to.x + params.key_dim * params.value_dim + d * STATE_BLOCK + at + row] = v;
        }
    }
    workgroupBarrier();
}

// Computes the sums of gates and the weights of `count` rows, which are positions of the block from `at` on.
fn load_weights(t: u32, count: u32, head: u32, to: u32, at: u32, lane: u32) {
    let keys = to + params.key_dim * params.value_dim;
    let totals = keys + STATE_BLOCK * (params.key_dim + params.value_dim);
    if (lane == 0u) {
        var sum = 0.0;
        for (var i = 0u; i < at; i++) {
            sum = recurrent_state[totals + i];
            sums[i] = sum;
        }
        for (var r = 0u; r < count; r++) {
            sum += gates[(t + r) * 2u * params.heads + head];
            sums[at + r] = sum;
            recurrent_state[totals + at + r] = sum;
        }
    }
    workgroupBarrier();
    let row = lane / STATE_BLOCK;
    let i = lane % STATE_BLOCK;
    var key = 0.0;
    var query = 0.0;
    if (row < count && i <= at + row) {
        for (var d = 0u; d < params.key_dim; d++) {
            var k = 0.0;
            if (i < at) {
                k = recurrent_state[keys + d * STATE_BLOCK + i];
            } else {
                k = vectors[(i - at) * KEYS + d];
            }
            key += vectors[row * KEYS + d] * k;
            query += vectors[(TILE + row) * KEYS + d] * k;
        }
        let decay = exp(sums[at + row] - sums[i]);
        key *= decay;
        query *= decay;
    }
    weights[lane] = key;
    weights[TILE * STATE_BLOCK + lane] = query;
    workgroupBarrier();
}

// Computes column c of `count` rows.
fn compute_column(t: u32, count: u32, head: u32, to: u32, at: u32, c: u32) {
    var keys: array<f32, TILE>;
    var queries: array<f32, TILE>;
    for (var d = 0u; d < params.key_dim; d++) {
        let s = recurrent_state[to + d * params.value_dim + c];
        for (var r = 0u; r < TILE; r++) {
            keys[r] += vectors[r * KEYS + d] * s;
            queries[r] += vectors[(TILE + r) * KEYS + d] * s;
        }
    }
    let values = to + params.key_dim * params.value_dim + STATE_BLOCK * params.key_dim + c;
    let keys_width = 2u * params.key_heads * params.key_dim;
    let width = keys_width + params.heads * params.value_dim;
    for (var r = 0u; r < count; r++) {
        var known = exp(sums[at + r]) * keys[r];
        var result = exp(sums[at + r]) * queries[r];
        for (var i = 0u; i < at + r; i++) {
            let u = recurrent_state[values + i * params.value_dim];
            known += weights[r * STATE_BLOCK + i] * u;
            result += weights[(TILE + r) * STATE_BLOCK + i] * u;
        }
        let v = x[(t + r) * width + keys_width + head * params.value_dim + c];
        let u = gates[((t + r) * 2u + 1u) * params.heads + head] * (v - known);
        recurrent_state[values + (at + r) * params.value_dim] = u;
        result += weights[(TILE + r) * STATE_BLOCK + at + r] * u;
        y[((t + r) * params.heads + head) * params.value_dim + c] = result;
    }
}

fn compute_tile(t: u32, count: u32, to: vec2<u32>, at: u32, lane: u32) {
    let head = to.y;
    let key_head = select(head / (params.heads / params.key_heads), head % params.key_heads, params.interleaved != 0u);
    load_vectors(t, count, vec2(to.x, key_head), at, lane);
    load_weights(t, count, head, to.x, at, lane);
    for (var c = lane; c < params.value_dim; c += WG) {
        compute_column(t, count, head, to.x, at, c);
    }
}
