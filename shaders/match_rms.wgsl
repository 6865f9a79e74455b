// y[t, i] *= sqrt(mean(x[t, :]^2) / max(mean(y[t, :]^2), floor))
//
// x, y: [tokens, dim] f32.  One workgroup per token.

#import tokens256
#import reduce

struct Params { tokens: u32, dim: u32, floor: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn compute(token: u32, lane: Lane) {
    let base = token * params.dim;
    var target_sum = 0.0;
    var sum = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        target_sum += x[base + i] * x[base + i];
        sum += y[base + i] * y[base + i];
    }
    let rms = sqrt(reduce_sum(lane, target_sum) / f32(params.dim));
    let scale = rms * inverseSqrt(max(reduce_sum(lane, sum) / f32(params.dim), params.floor));
    for (var i = lane.index; i < params.dim; i += WG) {
        y[base + i] *= scale;
    }
}
