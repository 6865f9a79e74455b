// Gated activations in blocks of 32 columns: one lane per four columns.

#import fours

const Y = 2;

@group(0) @binding(0) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> up: array<vec4<f32>>;

fn rows() -> u32 { return 1u; }

fn blocks() -> u32 { return params.dim / 32u; }

fn four_of(row: u32, i: u32) -> vec4<f32> {
    let at = 8u * row * blocks() + i;
    let g = gate[at];
    let act = vec4(
        activate(params.activation, g.x),
        activate(params.activation, g.y),
        activate(params.activation, g.z),
        activate(params.activation, g.w),
    );
    return act * up[at];
}
