// y[t, r] += (W[r, :] . q[t, :]) d[t] scale, digits of W times signed bytes
//
// W: [rows, cols] ternary digits, bound by lib/codes2.  q: [tokens, cols] signed bytes, rows padded
// with zeros to 64.  d: [tokens] f32.  y: [tokens, rows] f32.  Sums are exact except for the final
// addition to y.  One workgroup per four rows and eight tokens.

#import grid
#import state
#import bit_mat

const WG = 64u;
const UNITS = 4u;
const TOKENS = 8u;

struct Params { tokens: u32, rows: u32, cols: u32, scale: f32 }

@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> d: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

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
    let count = min(TOKENS, live - token);
    bit_mat(first, token, count, lane);
    let t = token + lane.index / UNITS;
    let row = first + lane.index % UNITS;
    if (lane.index < count * UNITS && row < params.rows) {
        y[t * params.rows + row] += f32(atomicLoad(&totals[lane.index])) * (d[t] * params.scale);
    }
}
