// Product of W and the tokens of x, by workgroups of UNITS rows and TOKENS tokens.
//
// The kernel defines `rows` and `cols` of its Params, and `put(row, token, sum)`, which stores one
// result. gemm_tile has the size of a workgroup and of its tile, and `compute_tile(row, token, live, lane)`, which
// computes a tile of `live` tokens; each of its results is a sum in a fixed order, so it does not depend on the others.

#import grid
#import lane
#import state
#import gemm_tile

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let live = min(params.tokens, state.active_rows);
    let row = unit_of(group, groups) * UNITS;
    let token = group.y * TOKENS;
    if (token >= live || row >= params.rows) {
        return;
    }
    compute_tile(row, token, live, lane);
}
