// y[t, i] += sum_s w[t, s] x[t, s, i]
//
// x: [tokens, k, dim] f32.  w: [tokens, k] f32.  y: [tokens, dim] f32.  One lane per element.

#import elements256

struct Params { tokens: u32, k: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    var sum = y[token * params.dim + i];
    for (var s = token * params.k; s < (token + 1u) * params.k; s++) {
        sum += w[s] * x[s * params.dim + i];
    }
    y[token * params.dim + i] = sum;
}
