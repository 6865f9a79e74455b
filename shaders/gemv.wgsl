// y[r] = W[r, :] . x, one token

#import state

const UNITS = 4u;

struct Params { rows: u32, cols: u32 }

@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(64)
fn main() {
}
