// q = rot(q, position); k_cache[row(position)] = rot(k, position); v_cache[row(position)] = v
//
// q: [tokens, heads, head_dim] f32.  k, v: [tokens, kv_heads, head_dim] f32.
// freqs: [rope_dim / 2] f32, radians per position.  Caches: [rows, kv_heads, head_dim]; page tables
// map positions to rows; head_dim is even and at most 576.  One workgroup per token and head, those
// of k and v after those of q.
// A row whose position is outside the context is unchanged.

#import store
#import rope_store

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, rope_dim: u32, half_split: u32, magnitude: f32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read> freqs: array<f32>;
@group(0) @binding(4) var<storage, read_write> q: array<f32>;
@group(0) @binding(7) var<storage, read> state: State;
var<immediate> params: Params;

// Rotated keys, then, from PAIRS, values.
var<workgroup> stored: array<vec2<f32>, 2u * PAIRS>;

fn load_value(p: u32, i: u32) {
    stored[PAIRS + p] = vec2(v[i], v[i + 1u]);
}
