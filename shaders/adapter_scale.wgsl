// y[t, i] *= scales[sequence[t], adapter]; 0 if the scale is 0
//
// scales: [sequences, adapters] f32.  y: [tokens, dim] f32.  A scale of 0 gives 0, also if y is not
// finite.  One lane per element.

#import elements256

struct Params { tokens: u32, dim: u32, adapters: u32, adapter: u32 }

@group(0) @binding(0) var<storage, read> scales: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let scale = scales[state.row[token].sequence * params.adapters + params.adapter];
    let at = token * params.dim + i;
    if (scale == 0.0) {
        y[at] = 0.0;
    } else {
        y[at] *= scale;
    }
}
