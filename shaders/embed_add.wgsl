// y[t, :] += W[stride * position[t] + type_stride * token_type[t] + offset, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  y: [tokens, cols] f32.
// W begins at row `first` of the whole matrix; a row out of range adds nothing.  One workgroup per
// token and 2048 columns.

#import grid
#import state
#import quant

const WG = 64u;
const UNITS = 2048u;

struct Params {
    tokens: u32, rows: u32, cols: u32, stride: u32, type_stride: u32, offset: u32, first: u32,
}

@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn put(t: u32, col: u32, v: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (col + j < params.cols) {
            y[t * params.cols + col + j] += v[j];
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = group.y;
    let i = unit_of(group, groups) * WG + lane;
    if (t >= min(params.tokens, state.active_rows) || i >= blocks()) {
        return;
    }
    let at = params.stride * state.row[t].position + params.type_stride * state.row[t].token_type;
    // Wraps around to a value out of range for rows before `first`.
    let row = at + params.offset - params.first;
    if (row >= params.rows) {
        return;
    }
    let v = numbers(row, i);
    put(t, 32u * i, v[0]);
    put(t, 32u * i + 4u, v[1]);
    put(t, 32u * i + 8u, v[2]);
    put(t, 32u * i + 12u, v[3]);
    put(t, 32u * i + 16u, v[4]);
    put(t, 32u * i + 20u, v[5]);
    put(t, 32u * i + 24u, v[6]);
    put(t, 32u * i + 28u, v[7]);
}
