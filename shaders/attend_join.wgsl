// y[t, h, :] = the weighted sum of values over all parts of x[t, h], divided by the sum of weights, with
// that of the sink
//
// x: [tokens, heads, parts, head_dim + 2] f32, the output of attend_part, at most WG parts.  y: [tokens,
// heads, head_dim] f32.  sinks: as in attention.  One workgroup per token and head.
//
// Each lane has the maximum of one part; then lanes sum two columns over some parts.

#import groups
#import parts
#import reduce
#import sink

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, head_dim: u32, window: u32, part: u32, parts: u32, positions: u32, sinks: u32, skip: u32 }

@group(0) @binding(0) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

// Weight of each part, divided by the sum of weights.
var<workgroup> weights: array<f32, WG>;
var<workgroup> sums: array<vec2<f32>, WG>;

fn groups() -> u32 { return params.heads; }

// Writes the columns `first` to `first + count`, in pairs, of a head.
fn put(lane: u32, first: u32, count: u32, parts: u32, unit: u32) {
    let pairs = params.head_dim / 2u;
    let step = WG / count;
    var sum = vec2(0.0);
    if (lane < step * count) {
        let start = unit * params.parts * (pairs + 1u) + first + lane % count;
        for (var p = lane / count; p < parts; p += step) {
            sum += weights[p] * x[start + p * (pairs + 1u)];
        }
    }
    workgroupBarrier();
    sums[lane] = sum;
    workgroupBarrier();
    if (lane < count) {
        for (var i = lane + count; i < step * count; i += count) {
            sum += sums[i];
        }
        y[unit * pairs + first + lane] = sum;
    }
}

fn compute(token: u32, head: u32, lane: Lane) {
    let own = min(state.row[token].position + 1u, state.context);
    let end = select(own, params.positions, params.positions != 0u);
    let seen = min(min(end, params.window), end - min(params.skip, end - 1u));
    let size = part_size(seen);
    let parts = min((seen + size - 1u) / size, params.parts);
    let pairs = params.head_dim / 2u;
    let unit = token * params.heads + head;
    let sink = sink_of(head);
    var part = vec2(sink, 0.0);
    if (lane.index < parts) {
        part = x[(unit * params.parts + lane.index) * (pairs + 1u) + pairs];
    }
    let peak = max(sink, reduce_max(lane, part.x));
    let weight = exp(part.x - peak);
    let total = reduce_sum(lane, weight * part.y) + exp(sink - peak);
    weights[lane.index] = weight / total;
    workgroupBarrier();
    for (var first = 0u; first < pairs; first += WG) {
        put(lane.index, first, min(WG, pairs - first), parts, unit);
    }
}
