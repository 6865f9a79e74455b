// S = e^gate S; S += k (beta (v - S^T k))^T; y[t, h, :] = S^T q
//
// x: [tokens, 2 key_heads key_dim + heads value_dim] f32, [q | k | v].  gates: [tokens, 2, heads] f32, [gate | beta].
// y: [tokens, heads, value_dim] f32.  key_dim is at most 128.
// recurrent_state: [states, heads, size] f32; u are the values that the delta rule adds.
// A row whose position is outside the context is unchanged.

#import state_block

const WG = 256u;
const UNITS = 1u;

struct Params { tokens: u32, key_heads: u32, heads: u32, key_dim: u32, value_dim: u32, interleaved: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read_write> recurrent_state: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

const TILE = 4u;
const QUADS = 32u;
// Lanes that load keys and queries; the others load values.
const LOADERS = TILE * QUADS;
// Sums of squares of eight lanes in a row.
const SUMS = QUADS / 8u;

// Sums over the keys and queries of the tile: k k, q q, k q.
var<workgroup> squares: array<vec4<f32>, TILE * SUMS>;
// k q of the rows.
var<workgroup> scores: array<f32, TILE>;

// Of the next tile: four numbers of a key and of a query; or two columns of a value, in fetched_key; gate and beta.
var<private> fetched_key: vec4<f32>;
var<private> fetched_query: vec4<f32>;
var<private> fetched_gates: vec2<f32>;

fn key_lanes() -> u32 { return 8u; }

fn fetch_rows(rows: Rows, number: u32) {
    let keys = params.key_heads * params.key_dim;
    let width = 2u * keys + params.heads * params.value_dim;
    if (number < LOADERS && number / QUADS < rows.count) {
        let key_head = select(rows.head / (params.heads / params.key_heads), rows.head % params.key_heads, params.interleaved != 0u);
        let d = number % QUADS * 4u;
        let at = (rows.t + number / QUADS) * width + key_head * params.key_dim + d;
        let count = max(params.key_dim, d) - d;
        fetched_query = four_of_x(at, count);
        fetched_key = four_of_x(at + keys, count);
    }
    if (number >= LOADERS && (number - LOADERS) / PAIRS < rows.count) {
        let row = (number - LOADERS) / PAIRS;
        let c = column - 2u * pair + number % PAIRS * 2u;
        let at = (rows.t + row) * width + 2u * keys + rows.head * params.value_dim + c;
        fetched_key = vec4(two_of_x(at, c), 0.0, 0.0);
    }
    if (number < rows.count) {
        let at = (rows.t + number) * 2u * params.heads + rows.head;
        fetched_gates = vec2(gates[at], gates[at + params.heads]);
    }
}

// Keys and queries get unit length.
fn put_rows(rows: Rows, lane: Lane) {
    let number = number_of(lane);
    let row = number / QUADS;
    let key = fetched_key;
    let query = fetched_query;
    let own = sum_key_lanes(lane, vec4(dot(key, key), dot(query, query), dot(key, query), 0.0));
    if (number < LOADERS && number % 8u == 0u) {
        squares[number / 8u] = own;
    }
    workgroupBarrier();
    if (number < LOADERS) {
        var sum = squares[row * SUMS];
        for (var i = 1u; i < SUMS; i++) {
            sum += squares[row * SUMS + i];
        }
        let scales = inverseSqrt(sum.xy + vec2(1e-6)) * vec2(1.0, inverseSqrt(f32(params.key_dim)));
        let unit = key * scales.x;
        vectors[number] = unit;
        vectors[LOADERS + number] = query * scales.y;
        if (number % QUADS == 0u) {
            scores[row] = sum.z * scales.x * scales.y;
        }
        if (rows.kept && row < rows.count && has_last()) {
            store_key(rows, row, number % QUADS * 4u, unit);
        }
    } else {
        values[number - LOADERS] = key.xy;
    }
    if (number < TILE) {
        gates_of[number] = fetched_gates;
    }
    workgroupBarrier();
}

fn compute_rows(rows: Rows, lane: Lane) {
    let number = number_of(lane);
    sum_gates(number);
    for (var r = 0u; r < rows.count; r++) {
        let sum = sums_of[r];
        let decay = decay_to(sum);
        let of_query = product(key_at(TILE + r));
        let key = key_at(r);
        let of_key = product(key);
        let all = decay * sum_key_lanes(lane, vec4(of_key, of_query));
        let u = gates_of[r].y * (values[r * PAIRS + pair] - all.xy);
        add_key(key, decay, u);
        let result = all.zw + scores[r] * u;
        if (key_lane == 0u) {
            let at = ((rows.t + r) * params.heads + rows.head) * params.value_dim + column;
            if (column < params.value_dim) { y[at] = result.x; }
            if (column + 1u < params.value_dim) { y[at + 1u] = result.y; }
        }
        if (key_lane == 1u && rows.kept) {
            put_columns(values_at(rows.to) + (rows.at + r) * params.value_dim, u);
        }
        if (rows.kept && number == 2u && has_last()) {
            recurrent_state[totals_at(rows.to) + rows.at + r] = sum;
        }
    }
}
