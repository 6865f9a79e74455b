// y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps)
//
// x, y: [tokens, groups, dim] f32.

#import rms

struct Params { tokens: u32, groups: u32, dim: u32, eps: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn factor(at: u32, i: u32) -> f32 {
    return 1.0;
}
