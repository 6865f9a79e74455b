// y[t, :] += W[stride * position[t] + offset, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  y: [tokens, cols] f32.
// W begins at row `first` of the whole; a row outside adds nothing.  One workgroup per token and 512 columns.

#import grid
#import state
#import quant
#import octet

const WG = 64u;
const UNITS = 512u;

struct Params { tokens: u32, rows: u32, cols: u32, stride: u32, offset: u32, first: u32 }

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
    let row = params.stride * state.row[t].position + params.offset - params.first;
    if (row >= params.rows) {
        return;
    }
    let v = octet(row, i);
    for (var j = 0u; j < 8u; j++) {
        let col = 8u * i + j;
        if (col < params.cols) {
            y[t * params.cols + col] += select(v.lo[j % 4u], v.hi[j % 4u], j >= 4u);
        }
    }
}
