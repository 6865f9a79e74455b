// y[t, offset + i] = ids[t, i], as f32
//
// ids: [tokens, dim] u32.  y: [tokens, width] f32, of which other columns are unchanged.  One lane per
// element.

#import elements256

struct Params { tokens: u32, dim: u32, width: u32, offset: u32 }

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    y[token * params.width + params.offset + i] = f32(ids[token * params.dim + i]);
}
