// y[r] = W[r, :] . (x / sqrt(mean(x^2) + eps) * n), one token
//
// W: [rows, cols] in any storage type, bound by lib/quant, cols a multiple of 4.  x, n: [cols] f32.
// y: f32, from element `first`.  One workgroup per four rows; each sums the squares of x while
// reading it, and divides the complete sums by the root mean square.

#import grid
#import state
#import mat_vec
#import reduce

const WG = 64u;
const UNITS = 4u;

struct Params { rows: u32, cols: u32, first: u32, eps: f32 }

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> n: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

// Sum of squares of the elements of x that a lane has read.
var<private> squares: f32;

fn x4(first: u32, i: u32) -> vec4<f32> {
    if (4u * i < params.cols) {
        let v = x[first / 4u + i];
        squares += dot(v, v);
        return v * n[i];
    }
    return vec4(0.0);
}

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
    let scale = inverseSqrt(reduce_sum(lane, squares) / f32(params.cols) + params.eps);
    if (lane.index < UNITS && first + lane.index < params.rows) {
        y[params.first + first + lane.index] = sums[lane.index] * scale;
    }
}
