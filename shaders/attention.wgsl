// y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group, seen, :]
//
// q, y: [tokens, heads, head_dim] f32, head_dim even and at most 576.
// Caches: [rows, kv_heads, head_dim]; page tables map positions to rows.
// `seen` are the rows of the last `window` positions including its own, or the first `positions` rows
// if that is not 0.  sinks: [heads] f32, a score of each head without a value, if params.sinks is not 0.

#import grid
#import state
#import sink
#import attention

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, softcap: f32, window: u32, stride: u32, first: u32, ring: u32, positions: u32, sinks: u32, skip: u32 }

@group(0) @binding(4) var<storage, read> sinks: array<f32>;
@group(0) @binding(6) var<storage, read> state: State;
var<immediate> params: Params;
