// y[t, i] += sum_s w[t, s] x[t, s, i]
//
// x: [tokens, k, dim] f32.  w: [tokens, k] f32.  y: [tokens, dim] f32.  One lane per element.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, k: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
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
    let t = group.y;
    if (t >= min(params.tokens, state.active_rows) || i >= params.dim) {
        return;
    }
    var sum = y[t * params.dim + i];
    for (var s = t * params.k; s < (t + 1u) * params.k; s++) {
        sum += w[s] * x[s * params.dim + i];
    }
    y[t * params.dim + i] = sum;
}
