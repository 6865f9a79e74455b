// y[t, s, i] += b[ids[t, s], i]
//
// y: [tokens, k, dim] f32.  b: [experts, dim] f32.  ids: [tokens, k], less than `experts`.  One lane per element.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, k: u32, dim: u32, experts: u32 }

@group(0) @binding(0) var<storage, read> b: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = unit_of(group, groups) * UNITS + lane;
    let width = params.k * params.dim;
    if (group.y >= min(params.tokens, state.active_rows) || i >= width) {
        return;
    }
    let id = ids[group.y * params.k + i / params.dim];
    // As in products, an id out of range has no effect.
    if (id < params.experts) {
        y[group.y * width + i] += b[id * params.dim + i % params.dim];
    }
}
