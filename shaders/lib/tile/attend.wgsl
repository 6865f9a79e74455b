// Attention of many tokens, one workgroup per KV head and ROWS rows, a token and a query head each;
// head_dim is a multiple of 8 and at most 512.
//
// The kernel defines q, [tokens, heads, head_dim] f32, y of the same shape, both by quads; key, low and
// high, value and four by octets and quads of a row; `seen_by(token)`, in order of tokens; `start_of(token,
// position)`, from which key and value find the row of a position of the sequence of a token; `capped`, which
// changes scores; and `sink_score(head)`, LOWEST without a sink.
//
// Lanes are arranged as `down` by `across`, depending on head_dim: a lane has four rows, of which it
// scores two positions of a tile, and sums a quad of columns. Queries and keys of a tile are loaded
// into workgroup memory by a few columns at a time, then scores are exchanged there. Tiles begin
// at multiples of their size and sums are in order of positions, so that results do not depend on the
// other tokens of the batch.

#import runs

const WG = 256u;
const UNITS = 1u;
const TOKENS = 32u;
// Maximum number of rows at a time.
const ROWS = 64u;
const LOWEST = -3.0e38;
// Number of weights of a tile, four rows each.
const WEIGHTS = 512u;

// Place of a lane. The number of lanes across is no part of it, so that it is uniform for compilers.
struct Lane { index: u32, down: u32, across: u32 }

// Four rows: scores of two positions.
struct Two { a: vec4<f32>, b: vec4<f32> }

// A quad of each of four rows.
struct Rows { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

// Quads of queries and of keys, each row padded by one to avoid bank conflicts; or the weights of a tile, by position and
// four rows, and the maxima of each lane.
var<workgroup> tile: array<vec4<f32>, 864>;
// Visible positions of four rows. Arrays and not vectors, because several lanes write them: a write of a component may
// access the whole vector.
var<workgroup> firsts: array<array<u32, 4>, ROWS / 4u>;
var<workgroup> ends: array<array<u32, 4>, ROWS / 4u>;
// First quad of each row of q.
var<workgroup> queries: array<u32, ROWS>;
// Start of the row of each position of a tile, by fours.
var<workgroup> starts: array<array<u32, 4>, 64>;

// Number of lanes across.
fn width() -> u32 {
    let quads = params.head_dim / 4u;
    return select(select(128u, 64u, quads <= 64u), select(32u, 16u, quads <= 16u), quads <= 32u);
}

// Number of rows at a time.
fn row_count() -> u32 {
    return 4u * WG / width();
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let head = unit_of(group, groups);
    let each = params.heads / params.kv_heads;
    let most = max(row_count(), TOKENS);
    let begin = (group.y * each + head % each) * most;
    let all = min(begin + most, min(params.tokens, state.active_rows) * each);
    if (begin >= all || head >= params.heads) {
        return;
    }
    attend(head / each, vec2(begin, all), Lane(index, index / width(), index % width()));
}

// Sets what rows of a KV head, from rows.x to rows.y, see, those of tokens from `first` to `end`, and nothing for others.
fn set_rows(kv_head: u32, rows: vec2<u32>, first: u32, end: u32, lane: Lane) {
    let each = params.heads / params.kv_heads;
    workgroupBarrier();
    if (lane.index < row_count()) {
        let row = min(rows.x + lane.index, rows.y - 1u);
        let token = row / each;
        var seen = Seen(0u, 0u);
        if (rows.x + lane.index < rows.y && token >= first && token < end) {
            seen = seen_by(token);
        }
        firsts[lane.index / 4u][lane.index % 4u] = seen.first;
        ends[lane.index / 4u][lane.index % 4u] = seen.end;
        queries[lane.index] = (token * params.heads + kv_head * each + row % each) * (params.head_dim / 4u);
    }
}

// `sum` + the products of a quad of each of four rows with a quad of a key.
fn dots(sum: vec4<f32>, rows: Rows, key: vec4<f32>) -> vec4<f32> {
    return vec4(
        dot_add(sum.x, rows.a, key),
        dot_add(sum.y, rows.b, key),
        dot_add(sum.z, rows.c, key),
        dot_add(sum.w, rows.d, key),
    );
}

fn dot_add(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// Scores of the two positions of a lane: `across` and `across + width` of the tile.
fn scores_of(column: u32, lane: Lane) -> Two {
    let quads = params.head_dim / 4u;
    let rows = row_count();
    // Number of quads, and of octets, at a time.
    let some = min(8u, 256u / width());
    let half = some / 2u;
    let keys = rows * (some + 1u);
    var sums = Two();
    for (var c = 0u; c < quads; c += some) {
        workgroupBarrier();
        for (var i = lane.index; i < rows * some; i += WG) {
            tile[i / some * (some + 1u) + i % some] = q[queries[i / some] + min(c + i % some, quads - 1u)];
        }
        for (var i = lane.index; i < 2u * width() * half; i += WG) {
            let position = i / half;
            let octet = min(c / 2u + i % half, quads / 2u - 1u);
            let k = key(starts[position / 4u][position % 4u], column + octet);
            let to = keys + position * (some + 1u) + i % half * 2u;
            tile[to] = low(k);
            tile[to + 1u] = high(k);
        }
        workgroupBarrier();
        let a = keys + lane.across * (some + 1u);
        let b = a + width() * (some + 1u);
        let row = 4u * lane.down * (some + 1u);
        for (var j = 0u; j < min(some, quads - c); j++) {
            let four_rows = Rows(
                tile[row + j],
                tile[row + some + 1u + j],
                tile[row + 2u * (some + 1u) + j],
                tile[row + 3u * (some + 1u) + j],
            );
            sums.a = dots(sums.a, four_rows, tile[a + j]);
            sums.b = dots(sums.b, four_rows, tile[b + j]);
        }
    }
    return sums;
}

fn masked(score: vec4<f32>, position: u32, down: u32) -> vec4<f32> {
    let first = vec4(firsts[down][0], firsts[down][1], firsts[down][2], firsts[down][3]);
    let end = vec4(ends[down][0], ends[down][1], ends[down][2], ends[down][3]);
    let seen = (vec4(position) >= first) & (vec4(position) < end);
    return select(vec4(LOWEST), capped(params.scale * score), seen);
}

fn weights_of(score: vec4<f32>, top: vec4<f32>) -> vec4<f32> {
    return select(exp(score - top), vec4(0.0), score <= vec4(LOWEST));
}

fn add_value(sums: Rows, value: Quad, weight: vec4<f32>) -> Rows {
    let v = four(value);
    return Rows(sums.a + weight.x * v, sums.b + weight.y * v, sums.c + weight.z * v, sums.d + weight.w * v);
}

// Adds a quad of the weighted values of four positions, from position `at` of the tile.
fn add_values(sums: Rows, at: u32, column: u32, lane: Lane) -> Rows {
    let four = at / 4u;
    let a = value(starts[four][0], column);
    let b = value(starts[four][1], column);
    let c = value(starts[four][2], column);
    let d = value(starts[four][3], column);
    let down = WG / width();
    let first = at * down + lane.down;
    var all = add_value(sums, a, tile[first]);
    all = add_value(all, b, tile[first + down]);
    all = add_value(all, c, tile[first + 2u * down]);
    return add_value(all, d, tile[first + 3u * down]);
}

fn scaled(sums: Rows, factor: vec4<f32>) -> Rows {
    return Rows(sums.a * factor.x, sums.b * factor.y, sums.c * factor.z, sums.d * factor.w);
}

// Attention of the rows from block.x to block.y of a KV head.
fn attend(kv_head: u32, block: vec2<u32>, lane: Lane) {
    let each = params.heads / params.kv_heads;
    let quads = params.head_dim / 4u;
    let size = 2u * width();
    let column = kv_head * quads + min(lane.across, quads - 1u);
    // The rows, the run of their tokens, and what it sees.
    var begin = block.x;
    var first = begin / each;
    var end = first;
    var range = vec2(0u);
    var peak = vec4(LOWEST);
    var total = vec4(0.0);
    var sums = Rows();
    // One loop over rows, runs and positions, four at a time: the sums take more registers in nested loops.
    var at = 0u;
    loop {
        if (at >= range.y) {
            if (first < end) {
                put(sums, peak, total, lane);
            }
            first = end;
            let limit = min(begin + row_count(), block.y);
            if (first * each >= limit) {
                begin = limit;
                first = begin / each;
                if (begin >= block.y) {
                    break;
                }
            }
            let rows = vec2(begin, min(begin + row_count(), block.y));
            end = run_end(first, (rows.y - 1u) / each + 1u, lane.index);
            set_rows(kv_head, rows, first, end, lane);
            range = vec2(seen_by(first).first, seen_by(end - 1u).end);
            at = range.x / size * size;
            peak = vec4(LOWEST);
            total = vec4(0.0);
            sums = Rows();
        }
        if (at % size == 0u) {
            workgroupBarrier();
            if (lane.index < size) {
                // Positions outside of the range have a weight of 0.
                let position = clamp(at + lane.index, range.x, range.y - 1u);
                starts[lane.index / 4u][lane.index % 4u] = start_of(first, position);
            }
            let scores = scores_of(kv_head * quads / 2u, lane);
            let a = masked(scores.a, at + lane.across, lane.down);
            let b = masked(scores.b, at + lane.across + width(), lane.down);
            workgroupBarrier();
            tile[WEIGHTS + lane.index] = max(a, b);
            workgroupBarrier();
            var top = peak;
            for (var i = 0u; i < width(); i += 4u) {
                let first = WEIGHTS + lane.down * width() + i;
                let half = max(tile[first], tile[first + 1u]);
                top = max(max(top, half), max(tile[first + 2u], tile[first + 3u]));
            }
            let decay = exp(peak - top);
            peak = top;
            let weight = Two(weights_of(a, top), weights_of(b, top));
            total = total * decay + weight.a + weight.b;
            sums = scaled(sums, decay);
            let to = lane.across * (WG / width()) + lane.down;
            tile[to] = weight.a;
            tile[to + WEIGHTS / 2u] = weight.b;
            workgroupBarrier();
        }
        sums = add_values(sums, at % size, column, lane);
        at += 4u;
    }
}

// Writes the sums of the rows of the run, divided by the sums of weights and that of the sink.
fn put(sums: Rows, peak: vec4<f32>, own_total: vec4<f32>, lane: Lane) {
    workgroupBarrier();
    tile[lane.index] = own_total;
    workgroupBarrier();
    var total = vec4(0.0);
    for (var i = 0u; i < width(); i++) {
        total += tile[lane.down * width() + i];
    }
    put_row(sums.a, vec2(peak.x, total.x), 0u, lane);
    put_row(sums.b, vec2(peak.y, total.y), 1u, lane);
    put_row(sums.c, vec2(peak.z, total.z), 2u, lane);
    put_row(sums.d, vec2(peak.w, total.w), 3u, lane);
}

fn put_row(sum: vec4<f32>, peak_total: vec2<f32>, row: u32, lane: Lane) {
    let quads = params.head_dim / 4u;
    let start = queries[4u * lane.down + row];
    let sink = sink_score(start / quads % params.heads);
    let top = max(peak_total.x, sink);
    let factor = exp(peak_total.x - top);
    // Rows of other runs see nothing here.
    if (ends[lane.down][row] > 0u && lane.across < quads) {
        y[start + lane.across] = factor / (factor * peak_total.y + exp(sink - top)) * sum;
    }
}
