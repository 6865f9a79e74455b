// One lane per four columns of the rows of a batch, whose number of columns is padded to blocks of 32.
//
// The kernel defines `tokens` of its Params; `rows()` and `blocks()`, the number of rows of a token and of blocks of a row;
// and `four_of(row, i)`, columns 4 i to 4 i + 4 of a row. It imports put_four, which stores them.

#import grid
#import put_four
#import state

const WG = 64u;
const UNITS = 256u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if (group.y >= min(params.tokens, state.active_rows)) {
        return;
    }
    let each = 8u * blocks();
    let at = unit_of(group, groups) * WG + lane;
    let stored = at < rows() * each;
    let row = group.y * rows() + at / each;
    var v = vec4(0.0);
    if (stored) {
        v = four_of(row, at % each);
    }
    put_four(row, at % each, v, stored, lane);
}
