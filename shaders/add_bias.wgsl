// y[t, i] += b[i]

#import state

const UNITS = 256u;

struct Params { tokens: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> b: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(64)
fn main() {
}
