// y[t, i] *= scales[sequence[t], adapter]; 0 if the scale is 0
//
// scales: [sequences, adapters] f32.  y: [tokens, dim] f32.  A scale of 0 gives 0, also if y is not
// finite.  One lane per element.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, dim: u32, adapters: u32, adapter: u32 }

@group(0) @binding(0) var<storage, read> scales: array<f32>;
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
    let scale = scales[state.row[group.y].sequence * params.adapters + params.adapter];
    let at = group.y * params.dim + i;
    if (scale == 0.0) {
        y[at] = 0.0;
    } else {
        y[at] *= scale;
    }
}
