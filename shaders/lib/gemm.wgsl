// Product of W and the tokens of x, by workgroups of 64 rows and 64 tokens.
//
// The kernel defines `rows` and `cols` of its Params, and `put(row, token, sum)`, which stores one
// result.

#import grid
#import lane
#import state
#import mat_mat
#import put_sums

const WG = 128u;
const UNITS = 64u;
const TOKENS = 64u;

// Row of x of a token.
fn x_row(token: u32) -> u32 {
    return token;
}

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
    let sums = mat_mat(row, token, live, lane);
    put_sums(vec2(row, token), vec2(params.rows, live), sums, lane);
}
