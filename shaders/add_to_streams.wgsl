// x_j[t, i] += (offset + gain c[t, j]) v[t, i] for the streams x_first to x_3 of x_0 to x_3
//
// c: [tokens, 4] f32.  v, x_0 to x_3: [tokens, dim] f32.  A gain of 0 removes its term, also if that
// is not finite.  One lane per element of a stream.

#import elements256

struct Params { tokens: u32, dim: u32, first: u32, offset: f32, gain: f32 }

@group(0) @binding(0) var<storage, read> c: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read_write> x0: array<f32>;
@group(0) @binding(3) var<storage, read_write> x1: array<f32>;
@group(0) @binding(4) var<storage, read_write> x2: array<f32>;
@group(0) @binding(5) var<storage, read_write> x3: array<f32>;
@group(0) @binding(6) var<storage, read> state: State;
var<immediate> params: Params;

fn factor(token: u32, j: u32) -> f32 {
    if (params.gain == 0.0) {
        return params.offset;
    }
    return params.offset + params.gain * c[4u * token + j];
}

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let at = token * params.dim + i;
    let value = v[at];
    if (params.first == 0u) {
        x0[at] += factor(token, 0u) * value;
    }
    if (params.first <= 1u) {
        x1[at] += factor(token, 1u) * value;
    }
    if (params.first <= 2u) {
        x2[at] += factor(token, 2u) * value;
    }
    x3[at] += factor(token, 3u) * value;
}
