// y[t, h, p, :] = for part p of the visible positions: the weighted sum of values, the maximum
// score, the sum of weights
//
// q: [tokens, heads, head_dim] f32, head_dim a multiple of 8 and at most 576.  Caches and visible
// positions as in attention.  y: [tokens, heads, parts, head_dim + 2] f32; a weight is exp(score -
// maximum).  Parts are consecutive visible positions, the last one may be shorter; unused
// parts are not written.  One workgroup per token, part and up to four query heads of a KV head,
// which is read once for them.
//
// Online softmax over tiles of positions. In each tile eight lanes score a position, so that they
// load consecutive bytes; then lanes sum four columns over groups of four positions.

#import grid
#import state
#import keys_values
#import fold
#import parts
#import span
#import tanh

const WG = 256u;
const UNITS = 1u;
const LOWEST = -3.0e38;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, softcap: f32, window: u32, stride: u32, first: u32, ring: u32, part: u32, parts: u32, positions: u32, skip: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// Columns, one query head per component: column j of each octet, then column j + 1. Lanes next to each
// other read octets next to each other. At the end, sums of each lane.
var<workgroup> query: array<vec4<f32>, 576>;
// Start of the cache row of each position of a tile.
var<workgroup> rows: array<vec2<u32>, TILE / 2u>;

fn softcapped(score: vec4<f32>) -> vec4<f32> {
    if (params.softcap == 0.0) {
        return score;
    }
    let s = score / params.softcap;
    return params.softcap * vec4(tanh_of(s.x), tanh_of(s.y), tanh_of(s.z), tanh_of(s.w));
}

// Adds the products of a column of the queries with that of two keys.
fn add_column(sums: Two, column: u32, a: f32, b: f32) -> Two {
    let all = query[column];
    return Two(sums.a + a * all, sums.b + b * all);
}

// Adds the products of four columns, from `first` in steps of `pitch`, of the queries and two keys.
fn add_columns(sums: Two, first: u32, pitch: u32, a: vec4<f32>, b: vec4<f32>) -> Two {
    var all = add_column(sums, first, a.x, b.x);
    all = add_column(all, first + pitch, a.y, b.y);
    all = add_column(all, first + 2u * pitch, a.z, b.z);
    return add_column(all, first + 3u * pitch, a.w, b.w);
}

// Partial scores of two positions: every eighth octet from `part`.
fn partial_scores(start: vec2<u32>, column: u32, part: u32) -> Two {
    let octets = params.head_dim / 8u;
    var sums = Two();
    for (var o = part; o < octets; o += 8u) {
        let a = key(start.x, column + o);
        let b = key(start.y, column + o);
        sums = add_columns(sums, o, octets, low(a), low(b));
        sums = add_columns(sums, o + 4u * octets, octets, high(a), high(b));
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

// Adds the weighted values of four positions.
fn add_values(sums: Heads, position: u32, column: u32) -> Heads {
    let start = rows[position / 2u];
    let next = rows[position / 2u + 1u];
    let a = value(start.x, column);
    let b = value(start.y, column);
    let c = value(next.x, column);
    let d = value(next.y, column);
    var all = add_value(sums, a, weight_of(position));
    all = add_value(all, b, weight_of(position + 1u));
    all = add_value(all, c, weight_of(position + 2u));
    return add_value(all, d, weight_of(position + 3u));
}

// Writes the sums of the heads: sums four columns over the lanes that share them, in order of lanes.
fn put(lane: u32, own: Heads, heads: u32, at: u32) {
    let quads = params.head_dim / 4u;
    let end = WG / quads * quads;
    var to = at + 2u * lane;
    for (var head = 0u; head < heads; head++) {
        workgroupBarrier();
        query[lane] = select(select(own.d, own.c, head == 2u), select(own.b, own.a, head == 0u), head < 2u);
        workgroupBarrier();
        if (lane < quads) {
            var all = query[lane];
            for (var i = lane + quads; i < end; i += quads) {
                all += query[i];
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
    for (var d = lane.index; d < params.head_dim; d += WG) {
        query[d % 8u * octets + d / 8u] =
            params.scale * vec4(q[of_head.x + d], q[of_head.y + d], q[of_head.z + d], q[of_head.w + d]);
    }

    let quads = 2u * octets;
    let step = WG / quads;
    let mine = kv_head * quads + lane.index % quads;
    let index = index_of(lane);
    var peak = vec4(LOWEST);
    var total = vec4(0.0);
    var sums = Heads();
    for (var done = 0u; done < count; done += TILE) {
        let left = min(TILE, count - done);
        workgroupBarrier();
        if (lane.index < TILE) {
            // Positions after the last repeat it, with a weight of 0.
            let i = done + min(lane.index, left - 1u);
            rows[lane.index / 2u][lane.index % 2u] = row_start(row_of(span, i));
        }
        workgroupBarrier();
        var partial = Two();
        if (index / 8u * 2u < left) {
            partial = partial_scores(rows[index / 8u], kv_head * octets, index % 8u);
        }
        fold(index, partial);
        workgroupBarrier();
        var score = vec4(LOWEST);
        if (lane.index < left) {
            score = softcapped(score_of(lane.index));
        }
        let top = max(peak, reduce_max4(lane, score));
        let decay = exp(peak - top);
        let weight = select(vec4(0.0), exp(score - top), lane.index < left);
        peak = top;
        total = total * decay + weight;
        if (lane.index < TILE) {
            put_weight(lane.index, weight);
        }
        sums = Heads(sums.a * decay.x, sums.b * decay.y, sums.c * decay.z, sums.d * decay.w);
        workgroupBarrier();
        if (lane.index < step * quads) {
            for (var j = lane.index / quads; 4u * j < left; j += step) {
                sums = add_values(sums, 4u * j, mine);
            }
        }
    }
    let weights = reduce_sum4(lane, total);

    let heads = min(4u, each - first);
    let next = params.parts * (params.head_dim / 2u + 1u);
    let at = (token * params.heads + kv_head * each + first) * next + part * (params.head_dim / 2u + 1u);
    put(lane.index, sums, heads, at);
    if (lane.index < heads) {
        y[at + lane.index * next + params.head_dim / 2u] = vec2(peak[lane.index], weights[lane.index]);
    }
}
