// S = e^gate S + b (dt v)^T; y[t, h, :] = S^T c + d[h] v
//
// x: [tokens, heads value_dim + 2 groups key_dim] f32, [v | b | c]; heads of a group share b and c.
// gates: [tokens, 2, heads] f32, [gate | dt].  d: [heads] f32.  y: [tokens, heads, value_dim] f32.
// key_dim is at most 256.
// recurrent_state: [states, heads, size] f32, with keys b and values dt v.
// A lane has columns of S.
// A row whose position is outside the context is unchanged.

#import recurrent
#import state_block

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, groups: u32, heads: u32, key_dim: u32, value_dim: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read_write> recurrent_state: array<f32>;
@group(0) @binding(4) var<storage, read> d: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read> state: State;
var<immediate> params: Params;

// Rows that are processed together, and the maximum key_dim.
const TILE = 8u;
const KEYS = 256u;

// Queries c of the tile.
var<workgroup> queries: array<f32, TILE * KEYS>;
// Weights of the values of the block in each row.
var<workgroup> weights: array<f32, TILE * STATE_BLOCK>;

// Number of elements of a row of x.
fn width() -> u32 {
    return params.heads * params.value_dim + 2u * params.groups * params.key_dim;
}

// Loads the queries of `count` rows from t on, and stores keys, values and sums of gates of the positions of
// the block from `at` on.
fn load(t: u32, count: u32, to: vec2<u32>, at: u32, lane: u32) {
    let keys = to.x + params.key_dim * params.value_dim;
    let values = keys + STATE_BLOCK * params.key_dim;
    let totals = values + STATE_BLOCK * params.value_dim;
    let first = params.heads * params.value_dim + to.y / (params.heads / params.groups) * params.key_dim;
    for (var r = 0u; r < count; r++) {
        let row = (t + r) * width();
        for (var i = lane; i < params.key_dim; i += WG) {
            recurrent_state[keys + i * STATE_BLOCK + at + r] = x[row + first + i];
            queries[r * KEYS + i] = x[row + first + params.groups * params.key_dim + i];
        }
        let dt = gates[((t + r) * 2u + 1u) * params.heads + to.y];
        for (var c = lane; c < params.value_dim; c += WG) {
            recurrent_state[values + (at + r) * params.value_dim + c] = dt * x[row + to.y * params.value_dim + c];
        }
    }
    if (lane == 0u) {
        var sum = 0.0;
        for (var i = 0u; i < at; i++) {
            sum = recurrent_state[totals + i];
            sums[i] = sum;
        }
        for (var r = 0u; r < count; r++) {
            sum += gates[(t + r) * 2u * params.heads + to.y];
            sums[at + r] = sum;
            recurrent_state[totals + at + r] = sum;
        }
    }
    storageBarrier();
    workgroupBarrier();
}

// Computes the weights of `count` rows, which are positions of the block from `at` on.
fn load_weights(count: u32, to: u32, at: u32, lane: u32) {
    let keys = to + params.key_dim * params.value_dim;
    for (var w = lane; w < TILE * STATE_BLOCK; w += WG) {
        let row = w / STATE_BLOCK;
        let i = w % STATE_BLOCK;
        var weight = 0.0;
        if (row < count && i <= at + row) {
            for (var k = 0u; k < params.key_dim; k++) {
                weight += queries[row * KEYS + k] * recurrent_state[keys + k * STATE_BLOCK + i];
            }
            weight *= exp(sums[at + row] - sums[i]);
        }
        weights[w] = weight;
    }
    workgroupBarrier();
}

// Computes column c of `count` rows.
fn compute_column(t: u32, count: u32, to: vec2<u32>, at: u32, c: u32) {
    var results: array<f32, TILE>;
    for (var k = 0u; k < params.key_dim; k++) {
        let s = recurrent_state[to.x + k * params.value_dim + c];
        for (var r = 0u; r < TILE; r++) {
            results[r] += queries[r * KEYS + k] * s;
        }
    }
    let values = to.x + params.key_dim * (params.value_dim + STATE_BLOCK) + c;
    for (var r = 0u; r < count; r++) {
        var result = exp(sums[at + r]) * results[r];
        for (var i = 0u; i <= at + r; i++) {
            result += weights[r * STATE_BLOCK + i] * recurrent_state[values + i * params.value_dim];
        }
        let column = to.y * params.value_dim + c;
        result += d[to.y] * x[(t + r) * width() + column];
        y[(t + r) * params.heads * params.value_dim + column] = result;
    }
}

fn compute_tile(t: u32, count: u32, to: vec2<u32>, at: u32, lane: u32) {
    load(t, count, to, at, lane);
    load_weights(count, to.x, at, lane);
    for (var c = lane; c < params.value_dim; c += WG) {
        compute_column(t, count, to, at, c);
    }
}
