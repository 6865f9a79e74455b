// y[t, :] = W[token[t], :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  y: [tokens, cols] f32.
// A token outside the rows gives zeros; where W is rows of a larger matrix from `first` on, all but
// the first of its parts leave y then.  One workgroup per token and 512 columns.

#import grid
#import state
#import quant
#import octet

const WG = 64u;
const UNITS = 512u;

struct Params { tokens: u32, rows: u32, cols: u32, first: u32 }

@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = group.y;
    let i = unit_of(group, groups) * WG + lane;
    if (t >= min(params.tokens, state.live) || i >= octets()) {
        return;
    }
    // Below the first row this wraps around, far beyond the last.
    let row = state.row[t].token - params.first;
    var v = Octet();
    if (row < params.rows) {
        v = octet(row, i);
    } else if (params.first != 0u) {
        return;
    }
    for (var j = 0u; j < 8u; j++) {
        let col = 8u * i + j;
        if (col < params.cols) {
            y[t * params.cols + col] = select(v.lo[j % 4u], v.hi[j % 4u], j >= 4u);
        }
    }
}
