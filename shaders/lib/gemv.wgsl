// Product of W and one token, by workgroups of two rows.
//
// The kernel defines `rows` and `first` of its Params, `x4` of mat_vec, and `put(at, sum)`, which stores
// the result of element `at` of y.

#import grid
#import state
#import mat_vec

const WG = 64u;
const UNITS = 2u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let first = unit_of(group, groups) * UNITS;
    if (state.active_rows == 0u || first >= params.rows) {
        return;
    }
    let sums = mat_vec(first, 0u, lane);
    if (lane.index < UNITS && first + lane.index < params.rows) {
        put(params.first + first + lane.index, sums[lane.index]);
    }
}
