// q = rot(q, position); k_cache[row(position)] = rot(k, position)
//
// q: [tokens, heads, head_dim] f32.  k: [tokens, kv_heads, head_dim] f32.
// freqs: [rope_dim / 2] f32, radians per position.  Cache: [rows, kv_heads, head_dim]; page tables map positions to
// rows; head_dim is even and at most 576.  One workgroup per token and head, those of k after those of q.
// A row whose position is outside the context is unchanged.

#import store_keys
#import rope_store

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, rope_dim: u32, half_split: u32, magnitude: f32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> freqs: array<f32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> stored: array<vec2<f32>, PAIRS>;

fn load_value(p: u32, i: u32) {}
