// S = e^gate S + b (dt v)^T; y[t, h, :] = S^T c + d[h] v
//
// x: [tokens, heads value_dim + 2 groups key_dim] f32, [v | b | c]; heads of a group share b and c.
// gates: [tokens, 2, heads] f32, [gate | dt].  d: [heads] f32.  y: [tokens, heads, value_dim] f32.
// key_dim is at most 256.
// recurrent_state: [states, heads, size] f32, with keys b and values dt v.
// A row whose position is outside the context is unchanged.

#import state_block

const WG = 256u;
const UNITS = 1u;

struct Params { tokens: u32, groups: u32, heads: u32, key_dim: u32, value_dim: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read_write> recurrent_state: array<f32>;
@group(0) @binding(4) var<storage, read> d: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read> state: State;
var<immediate> params: Params;

const TILE = 4u;
const QUADS = 64u;

// Of the next tile: four numbers of b and of c, two columns of v, gate and dt.
var<private> fetched_key: vec4<f32>;
var<private> fetched_query: vec4<f32>;
var<private> fetched_value: vec2<f32>;
var<private> fetched_gates: vec2<f32>;

fn key_lanes() -> u32 { return select(8u, 16u, params.key_dim > 128u); }

fn fetch_rows(rows: Rows, number: u32) {
    let all_values = params.heads * params.value_dim;
    let keys = params.groups * params.key_dim;
    let width = all_values + 2u * keys;
    if (number / QUADS < rows.count) {
        let n = number % QUADS * 4u;
        let group = rows.head / (params.heads / params.groups);
        let at = (rows.t + number / QUADS) * width + all_values + group * params.key_dim + n;
        let count = max(params.key_dim, n) - n;
        fetched_key = four_of_x(at, count);
        fetched_query = four_of_x(at + keys, count);
    }
    // Each lane has the columns of one of the rows.
    if (key_lane < rows.count) {
        fetched_value = two_of_x((rows.t + key_lane) * width + rows.head * params.value_dim + column, column);
    }
    if (number < rows.count) {
        let at = (rows.t + number) * 2u * params.heads + rows.head;
        fetched_gates = vec2(gates[at], gates[at + params.heads]);
    }
}

fn put_rows(rows: Rows, lane: Lane) {
    let number = number_of(lane);
    let row = number / QUADS;
    let quad = number % QUADS;
    workgroupBarrier();
    if (quad < 4u * key_lanes()) {
        vectors[row * 4u * key_lanes() + quad] = fetched_key;
        vectors[(TILE + row) * 4u * key_lanes() + quad] = fetched_query;
    }
    if (rows.kept && row < rows.count && has_last()) {
        store_key(rows, row, quad * 4u, fetched_key);
    }
    if (key_lane < TILE) {
        values[key_lane * PAIRS + pair] = fetched_value;
    }
    if (number < TILE) {
        gates_of[number] = fetched_gates;
    }
    workgroupBarrier();
}

// Adds row r of the tile to S; returns S^T c over the keys of the lane.
fn compute_row(rows: Rows, r: u32) -> vec2<f32> {
    let sum = sums_of[r];
    let decay = decay_to(sum);
    let u = gates_of[r].y * values[r * PAIRS + pair];
    add_key(key_at(r), decay, u);
    if (rows.kept && key_lane == 2u) {
        put_columns(values_at(rows.to) + (rows.at + r) * params.value_dim, u);
        if (pair == 0u && has_last()) {
            recurrent_state[totals_at(rows.to) + rows.at + r] = sum;
        }
    }
    return product(key_at(TILE + r));
}

fn compute_rows(rows: Rows, lane: Lane) {
    var pending = vec2(0.0);
    sum_gates(number_of(lane));
    for (var r = 0u; r < rows.count; r++) {
        let own = compute_row(rows, r);
        // Two rows at a time.
        if (r % 2u == 0u && r + 1u < rows.count) {
            pending = own;
            continue;
        }
        let results = sum_key_lanes(lane, vec4(pending, own));
        let first = r % 2u;
        if (key_lane <= first) {
            let row = r - first + key_lane;
            let v = values[row * PAIRS + pair];
            let result = select(results.zw, results.xy, key_lane < first) + d[rows.head] * v;
            let at = ((rows.t + row) * params.heads + rows.head) * params.value_dim + column;
            if (column < params.value_dim) { y[at] = result.x; }
            if (column + 1u < params.value_dim) { y[at + 1u] = result.y; }
        }
    }
}
