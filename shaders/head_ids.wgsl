// ids[t, h] = h
//
// ids: [tokens, heads] u32.  One lane per element.

#import grid
#import state

const WG = 64u;
const UNITS = 64u;

struct Params { tokens: u32, heads: u32 }

@group(0) @binding(0) var<storage, read_write> ids: array<u32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let h = unit_of(group, groups) * UNITS + lane;
    if (group.y >= min(params.tokens, state.active_rows) || h >= params.heads) {
        return;
    }
    ids[group.y * params.heads + h] = h;
}
