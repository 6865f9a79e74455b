// y[t, h, :] = softmax(cap(scale q[t, h, :] . k[rows, g, :])) v[rows, g, :], by a workgroup of WG lanes. The
// score of the sink, LOWEST if there is none, takes part in the softmax.
//
// The kernel defines q and y, [tokens, heads, head_dim] f32; row_start(row), from which key and
// value find pair i of a row of [rows, kv_heads, head_dim]; Span with `count` rows and row_of(span,
// i); and these dimensions in its Params. head_dim is even and at most 5 WG.
//
// Online softmax over tiles of WG rows: in each tile a lane scores one row, then sums four elements
// over every parts-th row; if head_dim is over 4 WG, the first lanes sum four more. Tiles begin at the first row of the span, so that the order of summation
// depends only on the span.

#import reduce
#import softcapped

const LOWEST = -3.0e38;

var<workgroup> query: array<vec2<f32>, 5u * WG / 2u>;
// Weight and start of each row of a tile.
var<workgroup> mass: array<f32, WG>;
var<workgroup> rows: array<u32, WG>;
var<workgroup> sums: array<vec4<f32>, WG>;

fn attend(token: u32, head: u32, span: Span, softcap_sink: vec2<f32>, lane: Lane) {
    let pairs = params.head_dim / 2u;
    let base = (token * params.heads + head) * params.head_dim;
    let column = head / (params.heads / params.kv_heads) * pairs;
    for (var p = lane.index; p < pairs; p += WG) {
        query[p] = params.scale * vec2(q[base + 2u * p], q[base + 2u * p + 1u]);
    }
    workgroupBarrier();

    // Each lane sums two pairs; with an odd number of pairs, the last lane sums the last pair twice
    // and writes it once.
    let quads = (pairs + 1u) / 2u;
    let parts = max(WG / quads, 1u);
    let part = lane.index / quads;
    let quad = lane.index % quads;
    let mine = column + vec2(2u * quad, min(2u * quad + 1u, pairs - 1u));
    let beyond = quad + WG;
    let more = column + vec2(2u * beyond, min(2u * beyond + 1u, pairs - 1u));
    var peak = LOWEST;
    var total = 0.0;
    var sum = vec4(0.0);
    var sum_beyond = vec4(0.0);
    for (var first = 0u; first < span.count; first += WG) {
        let i = first + lane.index;
        var score = LOWEST;
        var start = 0u;
        if (i < span.count) {
            start = row_start(row_of(span, i));
            var dots = 0.0;
            for (var p = 0u; p < pairs; p++) {
                dots += dot(query[p], key(start, column + p));
            }
            score = softcapped(dots, softcap_sink.x);
        }
        let top = max(peak, reduce_max(lane, score));
        let decay = exp(peak - top);
        let weight = select(0.0, exp(score - top), i < span.count);
        peak = top;
        mass[lane.index] = weight;
        rows[lane.index] = start;
        total = total * decay + weight;
        sum *= decay;
        sum_beyond *= decay;
        workgroupBarrier();
        if (part < parts) {
            for (var j = part; j < min(WG, span.count - first); j += parts) {
                sum += mass[j] * vec4(value(rows[j], mine.x), value(rows[j], mine.y));
            }
        }
        if (beyond < quads) {
            for (var j = 0u; j < min(WG, span.count - first); j++) {
                sum_beyond += mass[j] * vec4(value(rows[j], more.x), value(rows[j], more.y));
            }
        }
    }
    let top = max(peak, softcap_sink.y);
    let factor = exp(peak - top);
    let scale = factor / (factor * reduce_sum(lane, total) + exp(softcap_sink.y - top));
    sums[lane.index] = sum;
    workgroupBarrier();
    if (lane.index < quads) {
        var all = sums[lane.index];
        for (var i = 1u; i < parts; i++) {
            all += sums[i * quads + lane.index];
        }
        put_quad(base, lane.index, scale * all);
    }
    if (beyond < quads) {
        put_quad(base, beyond, scale * sum_beyond);
    }
}

// Writes four elements of a head, or two at its end.
fn put_quad(base: u32, quad: u32, value: vec4<f32>) {
    let at = base + 4u * quad;
    y[at] = value.x;
    y[at + 1u] = value.y;
    if (2u * quad + 1u < params.head_dim / 2u) {
        y[at + 2u] = value.z;
        y[at + 3u] = value.w;
    }
}
