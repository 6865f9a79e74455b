// One workgroup per token of a batch.
//
// The kernel defines `tokens` of its Params, and `compute(token, lane)`, which all lanes of a workgroup
// call. It imports this file with the size of its workgroups, tokens128 or tokens256, or declares WG
// and UNITS.

#import state
#import lane

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    if (group.y >= min(params.tokens, state.active_rows)) {
        return;
    }
    compute(group.y, lane);
}
