// One lane per element of the tokens of a batch.
//
// The kernel defines `tokens` of its Params; `elements()`, the number of elements of a token; and
// `element(token, i)`, which computes element i of a token. It imports this file with the size of its
// workgroups: elements64 or elements256.

#import grid
#import state

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = unit_of(group, groups) * UNITS + lane;
    if (group.y >= min(params.tokens, state.active_rows) || i >= elements()) {
        return;
    }
    element(group.y, i);
}
