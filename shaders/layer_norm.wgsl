// y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]
//
// x, y: [tokens, dim] f32.  w: [dim] f32.  One workgroup per token.  The variance is computed from
// x - mean, to avoid the cancellation of mean(x^2) - mean(x)^2.

#import tokens128
#import reduce

struct Params { tokens: u32, dim: u32, eps: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn compute(token: u32, lane: Lane) {
    let base = token * params.dim;
    var sum = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        sum += x[base + i];
    }
    let mean = reduce_sum(lane, sum) / f32(params.dim);
    var squares = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        let d = x[base + i] - mean;
        squares += d * d;
    }
    let scale = inverseSqrt(reduce_sum(lane, squares) / f32(params.dim) + params.eps);
    for (var i = lane.index; i < params.dim; i += WG) {
        y[base + i] = (x[base + i] - mean) * scale * w[i];
    }
}
