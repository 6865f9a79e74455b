// y[i] = -inf below the k-th largest

#import state

const UNITS = 1u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(64)
fn main() {
}
