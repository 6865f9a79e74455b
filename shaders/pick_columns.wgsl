// y[t, i] = x[t, index[i]], -inf where the index is negative
//
// x: [tokens, width] f32.  index: [dim] f32, integers.  y: [tokens, dim] f32.  One lane per element.

#import grid
#import keys
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, width: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> index: array<f32>;
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
    if (group.y >= min(params.tokens, state.active_rows) || i >= params.dim) {
        return;
    }
    let column = index[i];
    let here = column >= 0.0 && column < f32(params.width);
    let picked = x[group.y * params.width + select(0u, u32(column), here)];
    y[group.y * params.dim + i] = select(minus_inf(), picked, here);
}
