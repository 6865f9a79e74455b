// State S of a head with a block of later positions, whose keys and values are not yet in S.
//
// recurrent_state of a head: S before the block [key_dim, value_dim], for each position of the block: its key
// k [key_dim, STATE_BLOCK], the value u that is added [STATE_BLOCK, value_dim], sums G of gates [STATE_BLOCK].
// Position i of the block changes S to e^(G_i - G_(i-1)) S + k_i u_i^T; G before the block is 0.
//
// One workgroup per head and sequence, for all of its rows: the first key of a block replaces one of the block
// before, which all columns need. S is in registers from the first row to the last, two columns per lane. A key
// has 16 numbers for each of the key_lanes() consecutive lanes with the same columns, 0 from key_dim on.
//
// The kernel defines key_lanes(), at least 8; TILE, the number of rows that are loaded together, which divides
// STATE_BLOCK; QUADS, the maximum number of vectors of four numbers in a key; fetch_rows, which loads the rows of
// a tile into registers; put_rows, which moves them to workgroup memory; and compute_rows.

#import groups
#import key_lanes
#import recurrent

const PAIRS = WG / 8u;

// Keys, then queries, of the rows of a tile; or keys of twice as many rows.
var<workgroup> vectors: array<vec4<f32>, 2u * TILE * QUADS>;
// Values of these rows.
var<workgroup> values: array<vec2<f32>, 2u * TILE * PAIRS>;
// Gate and factor of these rows; or sum of gates.
var<workgroup> gates_of: array<vec2<f32>, 2u * TILE>;

// Numbers of a key or query that belong to a lane: four in each quarter.
struct Key { k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32> }

// Two columns of S for these.
struct Columns {
    a0: vec4<f32>, a1: vec4<f32>, a2: vec4<f32>, a3: vec4<f32>,
    b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>,
}

var<private> s: Columns;
// Sum of gates in the block up to the last position in S.
var<private> total: f32;
// First column of the lane, number of its pair of columns in the workgroup, and number of the lane
// among those with the same columns.
var<private> column: u32;
var<private> pair: u32;
var<private> key_lane: u32;

// Rows of a tile.
struct Rows {
    t: u32,        // first row
    count: u32,
    at: u32,       // position of the first row in its block
    head: u32,
    to: u32,       // element of recurrent_state where the state of the head begins
    kept: bool,    // whether the positions are stored in recurrent_state
}

// Element of recurrent_state where a state of the head begins.
fn head_at(head: u32, page: u32) -> u32 {
    let size = params.key_dim * params.value_dim + STATE_BLOCK * (params.key_dim + params.value_dim + 1u);
    return (page * params.heads + head) * size;
}

fn keys_at(to: u32) -> u32 { return to + params.key_dim * params.value_dim; }

fn values_at(to: u32) -> u32 { return keys_at(to) + STATE_BLOCK * params.key_dim; }

fn totals_at(to: u32) -> u32 { return values_at(to) + STATE_BLOCK * params.value_dim; }

// Number of columns that are computed together.
fn columns() -> u32 { return 2u * (WG / key_lanes()); }

// Whether these are the last columns: earlier ones leave the keys of the block before in place.
fn has_last() -> bool { return column / columns() == (params.value_dim - 1u) / columns(); }

// Part of the lane of vector `row` of the tile.
fn key_at(row: u32) -> Key {
    let i = row * 4u * key_lanes() + key_lane;
    return Key(
        vectors[i], vectors[i + key_lanes()], vectors[i + 2u * key_lanes()], vectors[i + 3u * key_lanes()],
    );
}

// S^T k over the keys of the lane.
fn product(k: Key) -> vec2<f32> {
    let a = fma(k.k3, s.a3, fma(k.k2, s.a2, fma(k.k1, s.a1, k.k0 * s.a0)));
    let b = fma(k.k3, s.b3, fma(k.k2, s.b2, fma(k.k1, s.b1, k.k0 * s.b0)));
    return vec2((a.x + a.y) + (a.z + a.w), (b.x + b.y) + (b.z + b.w));
}

// S = decay S + k u^T.
fn add_key(k: Key, decay: f32, u: vec2<f32>) {
    let a = vec4(u.x);
    let b = vec4(u.y);
    s = Columns(
        fma(k.k0, a, decay * s.a0), fma(k.k1, a, decay * s.a1), fma(k.k2, a, decay * s.a2), fma(k.k3, a, decay * s.a3),
        fma(k.k0, b, decay * s.b0), fma(k.k1, b, decay * s.b1), fma(k.k2, b, decay * s.b2), fma(k.k3, b, decay * s.b3),
    );
}

// Sums of gates up to each row of the tile, in workgroup memory: a compiler may compute (total + gate) - total as the gate,
// and S would have other bits than after adding the stored position.
var<workgroup> sums_of: array<f32, TILE>;

// Sums the gates of the tile. All lanes call it, after a barrier.
fn sum_gates(number: u32) {
    if (number == 0u) {
        var sum = total;
        for (var r = 0u; r < TILE; r++) {
            sum += gates_of[r].x;
            sums_of[r] = sum;
        }
    }
    workgroupBarrier();
}

// Decay of S at a position with this sum of gates.
fn decay_to(sum: f32) -> f32 {
    let decay = exp(sum - total);
    total = sum;
    return decay;
}

// Four numbers of x from `at` on, of which `count` are in a row.
fn four_of_x(at: u32, count: u32) -> vec4<f32> {
    var v = vec4(0.0);
    if (count >= 4u) {
        v = vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
    } else if (count > 0u) {
        v.x = x[at];
        if (count > 1u) { v.y = x[at + 1u]; }
        if (count > 2u) { v.z = x[at + 2u]; }
    }
    return v;
}

// Two numbers of x from `at` on: columns c and c + 1 of a value.
fn two_of_x(at: u32, c: u32) -> vec2<f32> {
    var v = vec2(0.0);
    if (c < params.value_dim) { v.x = x[at]; }
    if (c + 1u < params.value_dim) { v.y = x[at + 1u]; }
    return v;
}

// Stores two columns of a row of recurrent_state that begins at `at`.
fn put_columns(at: u32, v: vec2<f32>) {
    if (column < params.value_dim) { recurrent_state[at + column] = v.x; }
    if (column + 1u < params.value_dim) { recurrent_state[at + column + 1u] = v.y; }
}

// Stores four numbers of the key of a row.
fn store_key(rows: Rows, row: u32, d: u32, key: vec4<f32>) {
    let at = keys_at(rows.to) + d * STATE_BLOCK + rows.at + row;
    if (d < params.key_dim) { recurrent_state[at] = key.x; }
    if (d + 1u < params.key_dim) { recurrent_state[at + STATE_BLOCK] = key.y; }
    if (d + 2u < params.key_dim) { recurrent_state[at + 2u * STATE_BLOCK] = key.z; }
    if (d + 3u < params.key_dim) { recurrent_state[at + 3u * STATE_BLOCK] = key.w; }
}

// Four keys of a column of S from element `at` on, 0 from `end` on. The loads are unconditional, so that all are in
// flight.
fn load_four(at: u32, end: u32) -> vec4<f32> {
    let at1 = at + params.value_dim;
    let at2 = at1 + params.value_dim;
    let at3 = at2 + params.value_dim;
    let s = vec4(
        recurrent_state[min(at, end)], recurrent_state[min(at1, end)],
        recurrent_state[min(at2, end)], recurrent_state[min(at3, end)],
    );
    return select(vec4(0.0), s, vec4(at, at1, at2, at3) < vec4(end));
}

// Loads the columns of the lane. Those from value_dim on are not stored.
fn load_columns(to: u32) {
    let step = 4u * key_lanes() * params.value_dim;
    let end = keys_at(to);
    let at = to + 4u * key_lane * params.value_dim + column;
    let at1 = at + step;
    let at2 = at1 + step;
    let at3 = at2 + step;
    s = Columns(
        load_four(at, end), load_four(at1, end), load_four(at2, end), load_four(at3, end),
        load_four(at + 1u, end), load_four(at1 + 1u, end), load_four(at2 + 1u, end), load_four(at3 + 1u, end),
    );
}

// Stores four keys of two columns, in rows from `at` on.
fn store_four(at: u32, end: u32, a: vec4<f32>, b: vec4<f32>) {
    let at1 = at + params.value_dim;
    let at2 = at1 + params.value_dim;
    let at3 = at2 + params.value_dim;
    if (at < end) { put_columns(at, vec2(a.x, b.x)); }
    if (at1 < end) { put_columns(at1, vec2(a.y, b.y)); }
    if (at2 < end) { put_columns(at2, vec2(a.z, b.z)); }
    if (at3 < end) { put_columns(at3, vec2(a.w, b.w)); }
}

fn store_columns(to: u32) {
    let step = 4u * key_lanes() * params.value_dim;
    let end = keys_at(to);
    let at = to + 4u * key_lane * params.value_dim;
    let at1 = at + step;
    let at2 = at1 + step;
    store_four(at, end, s.a0, s.b0);
    store_four(at1, end, s.a1, s.b1);
    store_four(at2, end, s.a2, s.b2);
    store_four(at2 + step, end, s.a3, s.b3);
}

// Moves `count` positions of a block from `at` on to workgroup memory.
fn load_positions(old: u32, at: u32, count: u32, number: u32) {
    let row = number % (2u * TILE);
    let keys = keys_at(old) + at + row;
    for (var quad = number / (2u * TILE); quad < 4u * key_lanes() && row < count; quad += WG / (2u * TILE)) {
        var key = vec4(0.0);
        let d = 4u * quad;
        if (d < params.key_dim) { key.x = recurrent_state[keys + d * STATE_BLOCK]; }
        if (d + 1u < params.key_dim) { key.y = recurrent_state[keys + (d + 1u) * STATE_BLOCK]; }
        if (d + 2u < params.key_dim) { key.z = recurrent_state[keys + (d + 2u) * STATE_BLOCK]; }
        if (d + 3u < params.key_dim) { key.w = recurrent_state[keys + (d + 3u) * STATE_BLOCK]; }
        vectors[row * 4u * key_lanes() + quad] = key;
    }
    let first = values_at(old) + min(column, params.value_dim - 1u);
    for (var r = key_lane; r < count; r += key_lanes()) {
        let value = first + (at + r) * params.value_dim;
        values[r * PAIRS + pair] = vec2(recurrent_state[value], recurrent_state[value + 1u]);
    }
    if (number < count) {
        gates_of[number] = vec2(recurrent_state[totals_at(old) + at + number], 0.0);
    }
}

// Loads S and adds the first `count` positions of the block.
fn load_state(old: u32, count: u32, number: u32) {
    load_columns(old);
    for (var at = 0u; at < count; at++) {
        let row = at % (2u * TILE);
        if (row == 0u) {
            workgroupBarrier();
            load_positions(old, at, min(2u * TILE, count - at), number);
            workgroupBarrier();
        }
        add_key(key_at(row), decay_to(gates_of[row].x), values[row * PAIRS + pair]);
    }
    storageBarrier();
}

fn groups() -> u32 { return params.heads; }

// Row after the rows of the sequence of row t.
fn end_of_sequence(t: u32) -> u32 {
    let sequence = state.row[t].sequence;
    var first = t + 1u;
    var end = min(params.tokens, state.active_rows);
    while (first < end) {
        let middle = (first + end) / 2u;
        if (state.row[middle].sequence == sequence) {
            first = middle + 1u;
        } else {
            end = middle;
        }
    }
    return end;
}

// Number of rows of the tile from row t on.
fn count_of(position: u32, rows: u32) -> u32 {
    return min(TILE - position % TILE, rows);
}

// Begins with S before row t, for the columns of the lane.
fn begin_columns(t: u32, rows: u32, head: u32, lane: Lane) {
    let first = state.row[t].position;
    s = Columns();
    total = 0.0;
    if (first > 0u) {
        let own = pages_of(state.row[t].sequence);
        let position = first - 1u;
        load_state(head_at(head, state_at(own, position)), position % STATE_BLOCK + 1u, number_of(lane));
    }
    fetch_rows(Rows(t, count_of(first, rows), 0u, head, 0u, false), number_of(lane));
}

fn compute(token: u32, head: u32, lane: Lane) {
    let first = state.row[token].position;
    if (!is_first(token) || first >= state.context) {
        return;
    }
    let rows = min(end_of_sequence(token) - token, state.context - first);
    let own = pages_of(state.row[token].sequence);
    key_lane = number_of(lane) % key_lanes();
    pair = number_of(lane) / key_lanes();
    // Tiles of all rows, for some columns after the others.
    let rounds = (params.value_dim + columns() - 1u) / columns();
    var done = 0u;
    for (var round = 0u; round < rounds;) {
        if (done == 0u) {
            column = round * columns() + 2u * pair;
            begin_columns(token, rows, head, lane);
        }
        let position = first + done;
        let at = position % STATE_BLOCK;
        let page = state_at(own, position);
        // A later block replaces positions in the same state.
        let next = position - at + STATE_BLOCK;
        let kept = next >= first + rows || state_at(own, next) != page;
        let to = head_at(head, page);
        if (at == 0u) {
            total = 0.0;
            if (kept) {
                store_columns(to);
            }
        }
        let count = count_of(position, rows - done);
        let tile = Rows(token + done, count, at, head, to, kept);
        put_rows(tile, lane);
        done += count;
        if (done < rows) {
            fetch_rows(Rows(token + done, count_of(first + done, rows - done), 0u, head, 0u, false), number_of(lane));
        }
        compute_rows(tile, lane);
        if (done == rows) {
            done = 0u;
            round += 1u;
            storageBarrier();
            workgroupBarrier();
        }
    }
}
