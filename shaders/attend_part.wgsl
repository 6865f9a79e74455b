// y[t, h, p, :] = for part p of the visible positions: the weighted sum of values, the maximum
// score, the sum of weights
//
// q: [tokens, heads, head_dim] f32, head_dim a multiple of 8 and at most 576.  Caches and visible
// positions as in attention.  y: [tokens, heads, parts, head_dim + 2] f32; a weight is exp(score -
// maximum).  Parts are consecutive visible positions, the last one may be shorter; unused
// parts are not written.  One workgroup per token, part and up to four query heads of a KV head,
// which is read once for them.
//
// Online softmax over tiles of positions. In each tile four lanes score a position, so that they load
// consecutive bytes; then lanes sum four columns over groups of four positions.

#import grid
#import state
#import keys_values
#import fold
#import parts
#import quarters
#import softcapped
#import span

const WG = 256u;
const UNITS = 1u;
const LOWEST = -3.0e38;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, softcap: f32, window: u32, stride: u32, first: u32, ring: u32, part: u32, parts: u32, positions: u32, skip: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// Octets of columns, one query head per component, padded to avoid bank conflicts. At the end, sums of each lane.
var<workgroup> query: array<array<vec4<f32>, 9>, 72>;
// Start of the cache row of each position of a tile, by fours.
var<workgroup> rows: array<array<u32, 4>, TILE / 4u>;
// Number of positions of a tile that a lane weighs, for one head.
const SHARE = 4u * TILE / WG;

// Adds the products of a column of the queries with that of two keys.
fn add_column(sums: Two, column: vec4<f32>, a: f32, b: f32) -> Two {
    return Two(sums.a + a * column, sums.b + b * column);
}

// Partial scores of two positions: every fourth octet from `part`.
fn partial_scores(start: vec2<u32>, column: u32, part: u32) -> Two {
    var sums = Two();
    for (var o = part; o < params.head_dim / 8u; o += 4u) {
        let a = key(start.x, column + o);
        let b = key(start.y, column + o);
        sums = add_column(sums, query[o][0], low(a).x, low(b).x);
        sums = add_column(sums, query[o][1], low(a).y, low(b).y);
        sums = add_column(sums, query[o][2], low(a).z, low(b).z);
        sums = add_column(sums, query[o][3], low(a).w, low(b).w);
        sums = add_column(sums, query[o][4], high(a).x, high(b).x);
        sums = add_column(sums, query[o][5], high(a).y, high(b).y);
        sums = add_column(sums, query[o][6], high(a).z, high(b).z);
        sums = add_column(sums, query[o][7], high(a).w, high(b).w);
    }
    return sums;
}

// Four columns of four query heads.
struct Heads {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// Adds the weighted values of a position, four columns of each head.
fn add_value(sums: Heads, value: Quad, weight: vec4<f32>) -> Heads {
    let v = four(value);
    return Heads(sums.a + weight.x * v, sums.b + weight.y * v, sums.c + weight.z * v, sums.d + weight.w * v);
}

// Weights of position 4 i + j.
fn weights_of(i: u32, j: u32) -> vec4<f32> {
    return vec4(scores[i][j][0], scores[i][j][1], scores[i][j][2], scores[i][j][3]);
}

// Adds the weighted values of four positions from 4 i.
fn add_values(sums: Heads, i: u32, column: u32) -> Heads {
    let a = value(rows[i][0], column);
    let b = value(rows[i][1], column);
    let c = value(rows[i][2], column);
    let d = value(rows[i][3], column);
    var all = add_value(sums, a, weights_of(i, 0u));
    all = add_value(all, b, weights_of(i, 1u));
    all = add_value(all, c, weights_of(i, 2u));
    return add_value(all, d, weights_of(i, 3u));
}

// Writes the sums of the heads: sums four columns over the lanes that share them, in order of lanes.
fn put(lane: u32, own: Heads, heads: u32, at: u32) {
    let quads = params.head_dim / 4u;
    let end = WG / quads * quads;
    var to = at + 2u * lane;
    for (var head = 0u; head < heads; head++) {
        workgroupBarrier();
        query[lane / 8u][lane % 8u] = select(select(own.d, own.c, head == 2u), select(own.b, own.a, head == 0u), head < 2u);
        workgroupBarrier();
        if (lane < quads) {
            var all = query[lane / 8u][lane % 8u];
            for (var i = lane + quads; i < end; i += quads) {
                all += query[i / 8u][i % 8u];
            }
            y[to] = all.xy;
            y[to + 1u] = all.zw;
        }
        to += params.parts * (params.head_dim / 2u + 1u);
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let token = group.y;
    let unit = unit_of(group, groups);
    let each = params.heads / params.kv_heads;
    let fours = (each + 3u) / 4u;
    let part = unit % params.parts;
    let kv_head = unit / params.parts / fours;
    if (token >= min(params.tokens, state.active_rows) || kv_head >= params.kv_heads) {
        return;
    }
    let row = state.row[token];
    let end = select(min(row.position + 1u, state.context), params.positions, params.positions != 0u);
    let seen = min(min(end, params.window), end - min(params.skip, end - 1u));
    let size = part_size(seen);
    let begin = part * size;
    if (begin >= seen) {
        return;
    }
    let count = min(size, seen - begin);
    let span = Span(pages_of(row.sequence), end - seen + begin, count);

    // Heads beyond the last repeat the last head; their results are not written.
    let first = unit / params.parts % fours * 4u;
    let base = (token * params.heads + kv_head * each) * params.head_dim;
    let of_head = base + min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(each - 1u)) * params.head_dim;
    let octets = params.head_dim / 8u;
    let index = index_of(lane);
    for (var d = index; d < params.head_dim; d += WG) {
        query[d / 8u][d % 8u] =
            params.scale * vec4(q[of_head.x + d], q[of_head.y + d], q[of_head.z + d], q[of_head.w + d]);
    }

    let quads = 2u * octets;
    let step = WG / quads;
    let column = kv_head * quads + index % quads;
    // The softmax has a quarter of the lanes per head.
    let head = index / (WG / 4u);
    let own = index % (WG / 4u);
    var peak = vec4(LOWEST);
    var total = 0.0;
    var sums = Heads();
    for (var done = 0u; done < count; done += TILE) {
        let left = min(TILE, count - done);
        workgroupBarrier();
        if (index < TILE) {
            // Positions after the last repeat it, with a weight of 0.
            let i = done + min(index, left - 1u);
            rows[index / 4u][index % 4u] = row_start(row_of(span, i));
        }
        workgroupBarrier();
        // As many positions as the lanes score at once.
        for (var some = 0u; some < left; some += WG / 2u) {
            let at = some + index / 4u * 2u;
            var partial = Two();
            if (at < left) {
                let i = at / 4u;
                let start = select(vec2(rows[i][0], rows[i][1]), vec2(rows[i][2], rows[i][3]), at % 4u == 2u);
                partial = partial_scores(start, kv_head * octets, index % 4u);
            }
            fold(index, at, partial);
        }
        workgroupBarrier();
        var score = array<f32, SHARE>();
        var top = LOWEST;
        for (var i = 0u; i < SHARE; i++) {
            let position = own + i * (WG / 4u);
            let number = scores[position / 4u][position % 4u][head];
            score[i] = select(LOWEST, softcapped(number, params.softcap), position < left);
            top = max(top, score[i]);
        }
        let tops = max(peak, quarter_max(lane, top));
        let decay = exp(peak - tops);
        peak = tops;
        total *= decay[head];
        for (var i = 0u; i < SHARE; i++) {
            let position = own + i * (WG / 4u);
            let weight = select(0.0, exp(score[i] - tops[head]), position < left);
            scores[position / 4u][position % 4u][head] = weight;
            total += weight;
        }
        sums = Heads(sums.a * decay.x, sums.b * decay.y, sums.c * decay.z, sums.d * decay.w);
        workgroupBarrier();
        if (index < step * quads) {
            for (var j = index / quads; 4u * j < left; j += step) {
                sums = add_values(sums, j, column);
            }
        }
    }
    workgroupBarrier();
    let weights = quarter_sum(lane, total);

    let heads = min(4u, each - first);
    let next = params.parts * (params.head_dim / 2u + 1u);
    let at = (token * params.heads + kv_head * each + first) * next + part * (params.head_dim / 2u + 1u);
    put(index, sums, heads, at);
    if (index < heads) {
        y[at + index * next + params.head_dim / 2u] = vec2(peak[index], weights[index]);
    }
}
