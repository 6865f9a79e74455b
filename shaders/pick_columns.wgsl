// y[t, i] = x[t, index[i]], -inf where the index is negative
//
// x: [tokens, width] f32.  index: [dim] f32, integers.  y: [tokens, dim] f32.  One lane per element.

#import elements256
#import keys

struct Params { tokens: u32, width: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> index: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let column = index[i];
    let here = column >= 0.0 && column < f32(params.width);
    let picked = x[token * params.width + select(0u, u32(column), here)];
    y[token * params.dim + i] = select(minus_inf(), picked, here);
}
