// y[t, s, i] = act(x[t, s, i]) * x[t, s, dim + i]
//
// x: [tokens, groups, 2 dim] f32.  y: [tokens, groups, dim] f32.  One lane per element of y.

#import elements256
#import activation

struct Params { tokens: u32, groups: u32, dim: u32, activation: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.groups * params.dim; }

fn element(token: u32, i: u32) {
    let at = token * elements() + i;
    // Each group before has `dim` more elements in x than in y.
    let gate = at + at / params.dim * params.dim;
    y[at] = activate(params.activation, x[gate]) * x[gate + params.dim];
}
