// y[t, g, i] = x[t, g, offset + i]
//
// x: [tokens, groups, width] f32.  y: [tokens, groups, dim] f32.  One lane per element.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, groups: u32, width: u32, offset: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = unit_of(group, groups) * UNITS + lane;
    if (group.y >= min(params.tokens, state.active_rows) || i >= params.groups * params.dim) {
        return;
    }
    let row = group.y * params.groups + i / params.dim;
    y[group.y * params.groups * params.dim + i] = x[row * params.width + params.offset + i % params.dim];
}
