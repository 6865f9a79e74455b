// y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i] * silu(gate[t, g, i])
//
// x, gate, y: [tokens, groups, dim] f32.  w: [dim] f32.

#import rms
#import activation

struct Params { tokens: u32, groups: u32, dim: u32, eps: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> gate: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

fn factor(at: u32, i: u32) -> f32 {
    return w[i] * silu(gate[at]);
}
