// Attention of many tokens on cooperative matrices, f16 with f32 accumulation: one workgroup per KV head
// and block of rows, a token and a query head each; head_dim is a multiple of 8 and at most 256.
//
// The kernel defines what `attend` of the tile variant needs. The products of queries and keys, and of
// weights and values, are those of f16 numbers in workgroup memory. Each subgroup sums fragments of
// SIDE rows by 4 SIDE columns in registers. These sums are relative to a maximum score of each row that
// changes only if a score exceeds it by GROWTH, because it takes a detour through workgroup memory. Tiles
// begin at multiples of their size, so that results do not depend on the other tokens of the batch.

#import fragment
#import lane
#import runs

const WG = 128u;
const UNITS = 1u;
const TOKENS = 32u;
const LOWEST = -3.0e38;
// f16 represents e^GROWTH, and weights below it with the same relative error.
const GROWTH = 8.0;

// Rows of queries, keys or values, scores and weights are padded to avoid bank conflicts.
var<workgroup> q_tile: array<vec4<f16>, 1152>;
var<workgroup> kv_tile: array<vec4<f16>, 1088>;
var<workgroup> s_tile: array<vec4<f32>, 576>;
var<workgroup> p_tile: array<vec4<f16>, 512>;
const S_PITCH = 9u;
const P_PITCH = 8u;
// Visible positions of each row, first and end.
var<workgroup> seen: array<Seen, 64>;
// First quad of each row of q.
var<workgroup> queries: array<u32, 64>;
// Start of the row of each position of a tile.
var<workgroup> starts: array<u32, 32>;
// Factor of the sums of each row.
var<workgroup> factors: array<f32, 64>;
// Number of rows of the tile whose maximum changed.
var<workgroup> changes: atomic<u32>;
var<workgroup> changes_all: u32;

// Columns, padded; rows of queries; positions of a tile. `begin` and `limit` are the rows of the block.
struct Block { cols: u32, rows: u32, positions: u32, pitch: u32, kv_head: u32, begin: u32, limit: u32 }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let head = unit_of(group, groups);
    let each = params.heads / params.kv_heads;
    let cols = select(select(256u, 128u, params.head_dim <= 128u), 64u, params.head_dim <= 64u);
    let rows = 4096u / cols;
    let begin = (group.y * each + head % each) * max(rows, TOKENS);
    let all = min(begin + max(rows, TOKENS), min(params.tokens, state.active_rows) * each);
    if (begin >= all || head >= params.heads) {
        return;
    }
    // Number of units of SIDE rows by 4 SIDE columns.
    let units = rows / SIDE * (cols / (4u * SIDE));
    for (var at = begin; at < all; at += rows) {
        let block = Block(cols, rows, min(32u, 4096u / cols), cols / 4u + 2u, head / each, at, min(at + rows, all));
        for (var unit = 0u; unit < units; unit += lane.subgroups) {
            attend(block, unit + lane.subgroup, lane);
        }
    }
}

// All runs of the tokens of a block, for a unit of each subgroup.
fn attend(block: Block, unit: u32, lane: Lane) {
    let each = params.heads / params.kv_heads;
    let last = (block.limit - 1u) / each + 1u;
    var first = block.begin / each;
    while (first < last) {
        let end = run_end(first, last, lane.index);
        load_queries(block, first, end, lane.index);
        attend_run(block, unit, first, vec2(seen_by(first).first, seen_by(end - 1u).end), lane);
        first = end;
    }
}

fn load_queries(block: Block, first: u32, end: u32, lane: u32) {
    let each = params.heads / params.kv_heads;
    let quads = params.head_dim / 4u;
    workgroupBarrier();
    if (lane < block.rows) {
        let row = min(block.begin + lane, block.limit - 1u);
        let token = row / each;
        seen[lane] = Seen(0u, 0u);
        if (block.begin + lane < block.limit && token >= first && token < end) {
            seen[lane] = seen_by(token);
        }
        queries[lane] = (token * params.heads + block.kv_head * each + row % each) * quads;
    }
    workgroupBarrier();
    for (var i = lane; i < 1024u; i += WG) {
        let row = i / (block.cols / 4u);
        let quad = i % (block.cols / 4u);
        var v = vec4(0.0);
        if (quad < quads) {
            v = params.scale * q[queries[row] + quad];
        }
        q_tile[row * block.pitch + quad] = vec4<f16>(v);
    }
}

fn load_keys(block: Block, lane: u32) {
    let octets = params.head_dim / 8u;
    for (var i = lane; i < block.positions * (block.cols / 8u); i += WG) {
        let position = i / (block.cols / 8u);
        let octet = i % (block.cols / 8u);
        let to = position * block.pitch + 2u * octet;
        kv_tile[to] = vec4<f16>();
        kv_tile[to + 1u] = vec4<f16>();
        if (octet < octets) {
            let k = key(starts[position], block.kv_head * octets + octet);
            kv_tile[to] = vec4<f16>(low(k));
            kv_tile[to + 1u] = vec4<f16>(high(k));
        }
    }
}

fn load_values(block: Block, lane: u32) {
    let quads = params.head_dim / 4u;
    for (var i = lane; i < block.positions * (block.cols / 4u); i += WG) {
        let position = i / (block.cols / 4u);
        let quad = i % (block.cols / 4u);
        var v = vec4(0.0);
        if (quad < quads) {
            v = four(value(starts[position], block.kv_head * quads + quad));
        }
        kv_tile[position * block.pitch + quad] = vec4<f16>(v);
    }
}

// Scores of the tile, by fragments.
fn score(block: Block, lane: Lane) {
    let down = block.rows / SIDE;
    for (var f = lane.subgroup; f < down * (block.positions / SIDE); f += lane.subgroups) {
        let row = f % down * SIDE;
        let position = f / down * SIDE;
        var sums = FragmentY();
        for (var k = 0u; k < block.cols / 4u; k += SIDE / 4u) {
            let a = coopLoadT<FragmentW>(&q_tile[row * block.pitch + k], block.pitch);
            let b = coopLoad<FragmentX>(&kv_tile[position * block.pitch + k], block.pitch);
            sums = coopMultiplyAdd(a, b, sums);
        }
        coopStoreT(sums, &s_tile[row * S_PITCH + position / 4u], S_PITCH);
    }
}

fn masked(row: u32, quad: u32, at: u32) -> vec4<f32> {
    let position = vec4(at + 4u * quad) + vec4(0u, 1u, 2u, 3u);
    let own = seen[row];
    let visible = (position >= vec4(own.first)) & (position < vec4(own.end));
    return select(vec4(LOWEST), capped(s_tile[row * S_PITCH + quad]), visible);
}

// Replaces the scores of the lane's part of a row by weights relative to the maximum of the row, which grows if
// necessary; returns the maximum and the sum of the lane's weights.
fn weigh(block: Block, at: u32, own: vec2<f32>, lane: u32) -> vec2<f32> {
    let lanes = WG / block.rows;
    let row = lane / lanes;
    let quads = block.positions / 4u;
    var top = LOWEST;
    for (var i = 0u; i < quads; i++) {
        let s = masked(row, i, at);
        top = max(top, max(max(s.x, s.y), max(s.z, s.w)));
    }
    let grown = top > own.x + GROWTH;
    let peak = select(own.x, top, grown);
    let factor = exp(own.x - peak);
    if (grown) {
        atomicAdd(&changes, 1u);
    }
    if (lane % lanes == 0u) {
        factors[row] = factor;
    }
    var total = own.y * factor;
    for (var i = lane % lanes; i < quads; i += lanes) {
        let s = masked(row, i, at);
        let weights = vec4<f16>(select(exp(s - peak), vec4(0.0), s <= vec4(LOWEST)));
        total += dot(vec4<f32>(weights), vec4(1.0));
        p_tile[row * P_PITCH + i] = weights;
    }
    return vec2(peak, total);
}

// Attention of a run of tokens that begins with `first` and sees the positions from range.x to range.y.
fn attend_run(block: Block, unit: u32, first: u32, range: vec2<u32>, lane: Lane) {
    let down = block.rows / SIDE;
    let row = unit % down * SIDE;
    let column = min(unit / down * SIDE, block.cols / 4u - SIDE);
    // Where the subgroup keeps a fragment for a while.
    let scratch = lane.subgroup * (SIDE * SIDE / 4u);
    var own = vec2(LOWEST, 0.0);
    var c0 = FragmentY();
    var c1 = FragmentY();
    var c2 = FragmentY();
    var c3 = FragmentY();
    for (var at = range.x / block.positions * block.positions; at < range.y; at += block.positions) {
        workgroupBarrier();
        if (lane.index < block.positions) {
            // Positions outside of the range have a weight of 0.
            starts[lane.index] = start_of(first, clamp(at + lane.index, range.x, range.y - 1u));
        }
        if (lane.index == 0u) {
            atomicStore(&changes, 0u);
        }
        workgroupBarrier();
        load_keys(block, lane.index);
        workgroupBarrier();
        score(block, lane);
        workgroupBarrier();
        load_values(block, lane.index);
        own = weigh(block, at, own, lane.index);
        workgroupBarrier();
        if (lane.index == 0u) {
            changes_all = atomicLoad(&changes);
        }
        // In the first tile the sums are 0. A loop, since naga does not know that loads of all lanes are the same.
        let grown = workgroupUniformLoad(&changes_all) > 0u && at > range.x;
        for (var i = select(4u, 0u, grown); i < 4u; i++) {
            coopStoreT(c0, &s_tile[scratch], SIDE / 4u);
            workgroupBarrier();
            scale_scratch(down, unit - lane.subgroup, lane);
            workgroupBarrier();
            let scaled = coopLoadT<FragmentY>(&s_tile[scratch], SIDE / 4u);
            c0 = c1;
            c1 = c2;
            c2 = c3;
            c3 = scaled;
        }
        for (var k = 0u; k < block.positions / 4u; k += SIDE / 4u) {
            let a = coopLoadT<FragmentW>(&p_tile[row * P_PITCH + k], P_PITCH);
            let from_row = 4u * k * block.pitch + column;
            let b0 = coopLoadT<FragmentX>(&kv_tile[from_row], block.pitch);
            let b1 = coopLoadT<FragmentX>(&kv_tile[from_row + SIDE / 4u], block.pitch);
            let b2 = coopLoadT<FragmentX>(&kv_tile[from_row + SIDE / 2u], block.pitch);
            let b3 = coopLoadT<FragmentX>(&kv_tile[from_row + 3u * SIDE / 4u], block.pitch);
            c0 = coopMultiplyAdd(a, b0, c0);
            c1 = coopMultiplyAdd(a, b1, c1);
            c2 = coopMultiplyAdd(a, b2, c2);
            c3 = coopMultiplyAdd(a, b3, c3);
        }
    }
    set_factors(block, own, lane.index);
    for (var i = 0u; i < 4u; i++) {
        workgroupBarrier();
        coopStoreT(c0, &s_tile[scratch], SIDE / 4u);
        workgroupBarrier();
        scale_scratch(down, unit - lane.subgroup, lane);
        workgroupBarrier();
        put(block, unit - lane.subgroup, i, lane);
        c0 = c1;
        c1 = c2;
        c2 = c3;
    }
}

// Multiplies the fragments of all subgroups by the factors of their rows.
fn scale_scratch(down: u32, first: u32, lane: Lane) {
    for (var i = lane.index; i < lane.subgroups * (SIDE * SIDE / 4u); i += WG) {
        let unit = first + i / (SIDE * SIDE / 4u);
        s_tile[i] *= factors[unit % down * SIDE + i / (SIDE / 4u) % SIDE];
    }
}

// Sets the factors of the rows to the inverse sum of weights, with that of the sink.
fn set_factors(block: Block, own: vec2<f32>, lane: u32) {
    let lanes = WG / block.rows;
    workgroupBarrier();
    s_tile[lane].x = own.y;
    workgroupBarrier();
    if (lane % lanes == 0u) {
        var total = 0.0;
        for (var i = 0u; i < lanes; i++) {
            total += s_tile[lane + i].x;
        }
        let row = lane / lanes;
        let sink = sink_score(queries[row] / (params.head_dim / 4u) % params.heads);
        let top = max(own.x, sink);
        let factor = exp(own.x - top);
        factors[row] = factor / (factor * total + exp(sink - top));
    }
}

// Writes fragment `part` of the units of all subgroups.
fn put(block: Block, first: u32, part: u32, lane: Lane) {
    let down = block.rows / SIDE;
    let quads = params.head_dim / 4u;
    for (var i = lane.index; i < lane.subgroups * (SIDE * SIDE / 4u); i += WG) {
        let unit = first + i / (SIDE * SIDE / 4u);
        let row = unit % down * SIDE + i / (SIDE / 4u) % SIDE;
        let quad = unit / down * SIDE + part * (SIDE / 4u) + i % (SIDE / 4u);
        if (quad < quads && row < block.rows && seen[row].end > 0u) {
            y[queries[row] + quad] = s_tile[i];
        }
    }
}
