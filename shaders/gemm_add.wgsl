// y[t, r] += W[r, :] . x[t, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  x: [tokens, cols] f32.
// y: [tokens, width] f32, from column `first`.  One workgroup per 64 rows and 64 tokens.

#import grid
#import lane
#import state
#import mat_mat

const WG = 128u;
const UNITS = 64u;
const TOKENS = 64u;

struct Params { tokens: u32, rows: u32, cols: u32, first: u32, width: u32 }

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

// Index of the first element of x of a token.
fn x_first(token: u32) -> u32 {
    return token * params.cols;
}

// Adds the products of a row and four tokens.
fn put(row: u32, token: u32, live: u32, sums: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (row < params.rows && token + j < live) {
            y[(token + j) * params.width + params.first + row] += sums[j];
        }
    }
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
    let t = token + 4u * (lane.index / 8u);
    let r = row + lane.index % 8u;
    put(r, t, live, sums[0]);
    put(r + 8u, t, live, sums[1]);
    put(r + 16u, t, live, sums[2]);
    put(r + 24u, t, live, sums[3]);
    put(r + 32u, t, live, sums[4]);
    put(r + 40u, t, live, sums[5]);
    put(r + 48u, t, live, sums[6]);
    put(r + 56u, t, live, sums[7]);
}
