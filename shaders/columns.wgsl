// y[t, g, i] = x[t, g, offset + i]
//
// x: [tokens, groups, width] f32.  y: [tokens, groups, dim] f32.  One lane per element.

#import elements256

struct Params { tokens: u32, groups: u32, width: u32, offset: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.groups * params.dim; }

fn element(token: u32, i: u32) {
    let row = token * params.groups + i / params.dim;
    y[token * params.groups * params.dim + i] = x[row * params.width + params.offset + i % params.dim];
}
