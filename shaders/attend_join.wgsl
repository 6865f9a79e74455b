// y[t, h, :] = the weighted sum of values over all parts of x[t, h], divided by the sum of weights, with
// that of the sink
//
// x: [tokens, heads, parts, head_dim + 2] f32, the output of attend_part.  y: [tokens, heads,
// head_dim] f32.  sinks: as in attention.  One workgroup per token and head.

#import groups
#import sink

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, head_dim: u32, window: u32, part: u32, parts: u32, positions: u32, sinks: u32, skip: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let own = min(state.row[token].position + 1u, state.context);
    let end = select(own, params.positions, params.positions != 0u);
    let seen = min(min(end, params.window), end - min(params.skip, end - 1u));
    let parts = min((seen + params.part - 1u) / params.part, params.parts);
    let size = params.head_dim + 2u;
    let base = (token * params.heads + head) * params.parts * size;
    let sink = sink_of(head);
    var peak = sink;
    for (var p = 0u; p < parts; p++) {
        peak = max(peak, x[base + p * size + params.head_dim]);
    }
    var total = exp(sink - peak);
    for (var p = 0u; p < parts; p++) {
        let at = base + p * size + params.head_dim;
        total += exp(x[at] - peak) * x[at + 1u];
    }
    for (var i = lane.index; i < params.head_dim; i += WG) {
        var sum = 0.0;
        for (var p = 0u; p < parts; p++) {
            let at = base + p * size;
            sum += exp(x[at + params.head_dim] - peak) * x[at + i];
        }
        y[(token * params.heads + head) * params.head_dim + i] = sum / total;
    }
}
