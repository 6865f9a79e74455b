// q = rot(q, position); k_cache[position] = rot(k, position); v_cache[position] = v

#import state

const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, rope_dim: u32, half_split: u32 }

@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read> freqs: array<f32>;
@group(0) @binding(3) var<storage, read_write> q: array<f32>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<u32>;
@group(0) @binding(6) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(64)
fn main() {
}
