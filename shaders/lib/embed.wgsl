// Rows of W of the tokens, by workgroups of a token and 2048 columns.
//
// W begins at row `first` of the whole matrix. The kernel defines `rows`, `cols` and `first` of its
// Params; `row_of(token)`, a row of the whole matrix; `ZEROS`, whether rows out of range are stored as
// zeros, by the first part; and `put(at, value)`, which stores the result of element `at` of y.

#import grid
#import state
#import quant

const WG = 64u;
const UNITS = 2048u;

fn put4(at: u32, col: u32, v: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (col + j < params.cols) {
            put(at + col + j, v[j]);
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = unit_of(group, groups) * WG + lane;
    if (group.y >= min(params.tokens, state.active_rows) || i >= blocks()) {
        return;
    }
    // Wraps around to a value out of range for rows before `first`.
    let row = row_of(group.y) - params.first;
    var v = Numbers();
    if (row < params.rows) {
        v = numbers(row, i);
    } else if (!ZEROS || params.first != 0u) {
        return;
    }
    let at = group.y * params.cols;
    put4(at, 32u * i, v[0]);
    put4(at, 32u * i + 4u, v[1]);
    put4(at, 32u * i + 8u, v[2]);
    put4(at, 32u * i + 12u, v[3]);
    put4(at, 32u * i + 16u, v[4]);
    put4(at, 32u * i + 20u, v[5]);
    put4(at, 32u * i + 24u, v[6]);
    put4(at, 32u * i + 28u, v[7]);
}
