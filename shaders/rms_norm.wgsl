// y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i]
//
// x: [tokens, groups, dim] f32.  w: [dim] f32.  y: [tokens, groups, dim] f32; or in f16 or q8_1 for one group and dim
// a multiple of 32.

#import rms_norm

struct Params { tokens: u32, groups: u32, dim: u32, eps: f32 }

@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;
