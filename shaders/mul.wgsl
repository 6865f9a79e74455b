// y[t, i] *= w[i mod len]
//
// y: [tokens, dim] f32.  w: [len] f32.  One lane per element.

#import elements256

struct Params { tokens: u32, dim: u32, len: u32 }

@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    y[token * params.dim + i] *= w[i % params.len];
}
