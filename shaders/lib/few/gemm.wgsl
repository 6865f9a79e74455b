// Product of W and up to TOKENS tokens of x, by workgroups of four rows: a block of W is decoded once for all tokens.
//
// The kernel defines `rows` and `cols` of its Params, and `put(row, token, sum)`, which stores one
// result. Each result is a sum in a fixed order, so it does not depend on the other tokens.

#import grid
#import lane
#import state
#import few_rows

const WG = 64u;
const UNITS = 4u;
const TOKENS = 8u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let live = min(params.tokens, state.active_rows);
    let first = unit_of(group, groups) * UNITS;
    let token = group.y * TOKENS;
    if (token >= live || first >= params.rows) {
        return;
    }
    few_rows(first, token, live - token, lane);
}
