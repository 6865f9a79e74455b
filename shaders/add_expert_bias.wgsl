// y[t, s, i] += b[ids[t, s], i]
//
// y: [tokens, k, dim] f32.  b: [experts, dim] f32.  ids: [tokens, k], less than `experts`.  One lane per element.

#import elements256

struct Params { tokens: u32, k: u32, dim: u32, experts: u32 }

@group(0) @binding(0) var<storage, read> b: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.k * params.dim; }

fn element(token: u32, i: u32) {
    let id = ids[token * params.k + i / params.dim];
    // As in products, an id out of range has no effect.
    if (id < params.experts) {
        y[token * elements() + i] += b[id * params.dim + i % params.dim];
    }
}
