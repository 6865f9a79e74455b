// One workgroup per token of a batch and group of its elements, such as a head.
//
// The kernel defines WG and UNITS = 1; `tokens` of its Params; `groups()`, the number of groups of a token; and
// `compute(token, group, lane)`, which all lanes of a workgroup call.

#import grid
#import state
#import lane

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) ids: vec3<u32>,
    lane: Lane,
) {
    let group = unit_of(id, ids);
    if (id.y >= min(params.tokens, state.active_rows) || group >= groups()) {
        return;
    }
    compute(id.y, group, lane);
}
