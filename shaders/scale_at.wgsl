// y[t, i] *= 1 + beta ln(1 + floor(position[t] / length))
//
// y: [tokens, dim] f32.  One lane per element.

#import grid
#import state
#import ln

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, dim: u32, beta: f32, length: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
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
    let steps = f32(state.row[group.y].position / params.length);
    y[group.y * params.dim + i] *= 1.0 + params.beta * ln(1.0 + steps);
}
