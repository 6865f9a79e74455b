// y[t, i] = x[t, i]
//
// x, y: [tokens, dim], 32-bit words of any type.  One lane per element.  A table of two devices copies from one
// to the other instead; this kernel runs such a table on one device.

#import elements256

struct Params { tokens: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let at = token * params.dim + i;
    y[at] = x[at];
}
