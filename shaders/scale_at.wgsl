// y[t, i] *= 1 + beta ln(1 + floor(position[t] / length))
//
// y: [tokens, dim] f32.  One lane per element.

#import elements256
#import ln

struct Params { tokens: u32, dim: u32, beta: f32, length: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let steps = f32(state.row[token].position / params.length);
    y[token * params.dim + i] *= 1.0 + params.beta * ln(1.0 + steps);
}
