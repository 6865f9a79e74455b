// y[t, i] = max(y[t, i] - (mean(y[t, :]) + deviations sigma(y[t, :])), 0)
//
// y: [tokens, dim] f32.  One workgroup per token.  The variance is computed from y - mean, to avoid
// the cancellation of mean(y^2) - mean(y)^2.

#import tokens128
#import reduce

struct Params { tokens: u32, dim: u32, deviations: f32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

fn compute(token: u32, lane: Lane) {
    let base = token * params.dim;
    var sum = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        sum += y[base + i];
    }
    let mean = reduce_sum(lane, sum) / f32(params.dim);
    var squares = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        let d = y[base + i] - mean;
        squares += d * d;
    }
    let sigma = sqrt(reduce_sum(lane, squares) / f32(params.dim));
    let cutoff = mean + params.deviations * sigma;
    for (var i = lane.index; i < params.dim; i += WG) {
        y[base + i] = max(y[base + i] - cutoff, 0.0);
    }
}
