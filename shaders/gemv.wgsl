// y[r] = W[r, :] . x, one token
//
// W: [rows, cols] in any storage type, bound by lib/quant.  x: [cols] f32.  y: f32, from element
// `first`.  One workgroup per four rows.

#import grid
#import state
#import mat_vec
#import x4

const WG = 64u;
const UNITS = 4u;

struct Params { rows: u32, cols: u32, first: u32 }

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

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
        y[params.first + first + lane.index] = sums[lane.index];
    }
}
