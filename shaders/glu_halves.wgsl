// y[t, s, i] = act(x[t, s, i]) * x[t, s, dim + i]
//
// x: [tokens, groups, 2 dim] f32.  y: [tokens, groups, dim] f32.  One lane per element of y.

#import grid
#import state
#import activation

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, groups: u32, dim: u32, activation: u32 }

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
    let width = params.groups * params.dim;
    if (group.y >= min(params.tokens, state.active_rows) || i >= width) {
        return;
    }
    let at = group.y * width + i;
    // Each group before has `dim` more elements in x than in y.
    let gate = at + at / params.dim * params.dim;
    y[at] = activate(params.activation, x[gate]) * x[gate + params.dim];
}
