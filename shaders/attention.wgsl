// y[t, h, :] = softmax(scale q[t, h, :] . k[h / group, 0..=position, :]) v[h / group, 0..=position, :]

#import state

const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(64)
fn main() {
}
