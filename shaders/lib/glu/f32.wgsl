// Gated activations in f32: one lane per element.

#import elements256

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let at = token * params.dim + i;
    y[at] = activate(params.activation, gate[at]) * up[at];
}
