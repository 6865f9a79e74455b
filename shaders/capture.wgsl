// y[t, offset + i] = x[t, i]
//
// x: [tokens, dim] f32.  y: [tokens, width] f32, of which other columns are unchanged.  One lane per
// element.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, dim: u32, width: u32, offset: u32 }

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
    if (group.y >= min(params.tokens, state.active_rows) || i >= params.dim) {
        return;
    }
    y[group.y * params.width + params.offset + i] = x[group.y * params.dim + i];
}
