// y[t, h, :] = softmax(scale q[t, h, :] . k[seen, h / group, :]) v[seen, h / group, :]
//
// q, y: [tokens, heads, head_dim] f32, head_dim even and at most 512.
// k, v: [tokens, kv_heads, head_dim] f32.  `seen` are the rows of the same sequence at a distance of
// at most `reach`.

#import state
#import self_attention

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, reach: u32 }

@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;
