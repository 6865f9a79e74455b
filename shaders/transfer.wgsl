// y[t, i] = x[t, i]
//
// x, y: [tokens, dim], 32-bit words of any type.  One lane per element.  A table of two devices copies from one
// to the other instead; this kernel runs such a table on one device.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
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
    let at = group.y * params.dim + i;
    y[at] = x[at];
}
