// y[t, h, p, :] = for part p of the visible positions: the weighted sum of values, the maximum
// score, the sum of weights
//
// q: [tokens, heads, head_dim] f32, head_dim a multiple of 8 and at most 576.  Caches and visible
// positions as in attention.  y: [tokens, heads, parts, head_dim + 2] f32; a weight is exp(score -
// maximum).  A part has `part` consecutive visible positions, the last one may be shorter; unused
// parts are not written.  One workgroup per token, part and up to four query heads of a KV head,
// which is read once for them.

#import grid
#import state
#import keys_values
#import reduce4
#import span
#import tanh

const WG = 128u;
const UNITS = 1u;
const LOWEST = -3.0e38;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, softcap: f32, window: u32, stride: u32, first: u32, ring: u32, part: u32, parts: u32, positions: u32, skip: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// [column], one query head per component.
var<workgroup> query: array<vec4<f32>, 576>;
// [position], one query head per component; and the start of the cache row of each position.
var<workgroup> mass: array<vec4<f32>, WG>;
var<workgroup> rows: array<u32, WG>;
var<workgroup> sums: array<vec4<f32>, WG>;

fn softcapped(score: vec4<f32>) -> vec4<f32> {
    if (params.softcap == 0.0) {
        return score;
    }
    let s = score / params.softcap;
    return params.softcap * vec4(tanh_of(s.x), tanh_of(s.y), tanh_of(s.z), tanh_of(s.w));
}

// Sums four columns over the lanes that share them, in order of lanes, and writes them.
fn put(lane: u32, own: vec4<f32>, octets: u32, at: u32) {
    workgroupBarrier();
    sums[lane] = own;
    workgroupBarrier();
    if (lane < octets) {
        var all = sums[lane];
        for (var i = lane + octets; i < WG / octets * octets; i += octets) {
            all += sums[i];
        }
        y[at] = all.x;
        y[at + 1u] = all.y;
        y[at + 2u] = all.z;
        y[at + 3u] = all.w;
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
    let begin = part * params.part;
    if (begin >= seen) {
        return;
    }
    let count = min(params.part, seen - begin);
    let span = Span(pages_of(row.sequence), end - seen + begin, count);

    // Heads beyond the last repeat the last head; their results are not written.
    let first = unit / params.parts % fours * 4u;
    let base = (token * params.heads + kv_head * each) * params.head_dim;
    let of_head = base + min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(each - 1u)) * params.head_dim;
    for (var d = lane.index; d < params.head_dim; d += WG) {
        query[d] = params.scale * vec4(q[of_head.x + d], q[of_head.y + d], q[of_head.z + d], q[of_head.w + d]);
    }
    workgroupBarrier();

    let octets = params.head_dim / 8u;
    let column = kv_head * octets;
    let step = WG / octets;
    let mine = lane.index % octets;
    var peak = vec4(LOWEST);
    var total = vec4(0.0);
    var a = Eight();
    var b = Eight();
    var c = Eight();
    var d = Eight();
    for (var done = 0u; done < count; done += WG) {
        let i = done + lane.index;
        var score = vec4(LOWEST);
        var start = 0u;
        if (i < count) {
            start = row_start(row_of(span, i));
            var dots = vec4(0.0);
            for (var o = 0u; o < octets; o++) {
                let k = key(start, column + o);
                dots += query[8u * o] * k.lo.x + query[8u * o + 1u] * k.lo.y;
                dots += query[8u * o + 2u] * k.lo.z + query[8u * o + 3u] * k.lo.w;
                dots += query[8u * o + 4u] * k.hi.x + query[8u * o + 5u] * k.hi.y;
                dots += query[8u * o + 6u] * k.hi.z + query[8u * o + 7u] * k.hi.w;
            }
            score = softcapped(dots);
        }
        let top = max(peak, reduce_max4(lane, score));
        let decay = exp(peak - top);
        let weight = select(vec4(0.0), exp(score - top), i < count);
        peak = top;
        mass[lane.index] = weight;
        rows[lane.index] = start;
        total = total * decay + weight;
        a = Eight(a.lo * decay.x, a.hi * decay.x);
        b = Eight(b.lo * decay.y, b.hi * decay.y);
        c = Eight(c.lo * decay.z, c.hi * decay.z);
        d = Eight(d.lo * decay.w, d.hi * decay.w);
        workgroupBarrier();
        if (lane.index < step * octets) {
            for (var j = lane.index / octets; j < min(WG, count - done); j += step) {
                let v = value(rows[j], column + mine);
                let m = mass[j];
                a = Eight(a.lo + m.x * v.lo, a.hi + m.x * v.hi);
                b = Eight(b.lo + m.y * v.lo, b.hi + m.y * v.hi);
                c = Eight(c.lo + m.z * v.lo, c.hi + m.z * v.hi);
                d = Eight(d.lo + m.w * v.lo, d.hi + m.w * v.hi);
            }
        }
    }
    let weights = reduce_sum4(lane, total);

    let size = params.head_dim + 2u;
    let out = ((token * params.heads + kv_head * each + first) * params.parts + part) * size;
    let next = params.parts * size;
    let at = out + 8u * lane.index;
    put(lane.index, a.lo, octets, at);
    put(lane.index, a.hi, octets, at + 4u);
    if (first + 1u < each) {
        put(lane.index, b.lo, octets, at + next);
        put(lane.index, b.hi, octets, at + next + 4u);
    }
    if (first + 2u < each) {
        put(lane.index, c.lo, octets, at + 2u * next);
        put(lane.index, c.hi, octets, at + 2u * next + 4u);
    }
    if (first + 3u < each) {
        put(lane.index, d.lo, octets, at + 3u * next);
        put(lane.index, d.hi, octets, at + 3u * next + 4u);
    }
    if (lane.index < 4u && first + lane.index < each) {
        let at = out + lane.index * next + params.head_dim;
        y[at] = peak[lane.index];
        y[at + 1u] = weights[lane.index];
    }
}
