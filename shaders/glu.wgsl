// y[t, i] = act(gate[t, i]) * up[t, i]
//
// gate, up: [tokens, dim] f32.  y: [tokens, dim] f32, or in f16 or q8_1 for dim a multiple of 32.

#import glu
#import activation

struct Params { tokens: u32, dim: u32, activation: u32 }

@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;
