// token = argmax(x), lowest id first; advances the state and appends to the history

#import state

const UNITS = 1u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> history: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: State;
var<immediate> params: Params;

@compute @workgroup_size(64)
fn main() {
}
