// y[t, g, :] = [a[t, g, :], b[t, g, :]]
//
// a: [tokens, groups, a_dim] f32.  b: [tokens, groups, b_dim] f32.  y: [tokens, groups, a_dim + b_dim] f32.
// One lane per element.

#import elements256

struct Params { tokens: u32, groups: u32, a_dim: u32, b_dim: u32 }

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.groups * (params.a_dim + params.b_dim); }

fn element(token: u32, i: u32) {
    let dim = params.a_dim + params.b_dim;
    let row = token * params.groups + i / dim;
    let column = i % dim;
    var value = 0.0;
    if (column < params.a_dim) {
        value = a[row * params.a_dim + column];
    } else {
        value = b[row * params.b_dim + column - params.a_dim];
    }
    y[row * dim + column] = value;
}
