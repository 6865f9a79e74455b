// RMS norm in blocks of 32 columns: one workgroup per token, four columns per lane.

#import grid
#import numbers
#import put_four
#import state

const WG = 256u;
const UNITS = 1u;
const Y = 2;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<f32>>;

var<workgroup> norm_sums: array<f32, WG>;

fn blocks() -> u32 { return params.dim / 32u; }

// Sum over the workgroup, in a fixed order. All lanes call it.
fn sum_row(lane: u32, value: f32) -> f32 {
    norm_sums[lane] = value;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            norm_sums[lane] += norm_sums[lane + half];
        }
    }
    workgroupBarrier();
    return norm_sums[0];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let token = id.y;
    if (token >= min(params.tokens, state.active_rows)) {
        return;
    }
    let fours = params.dim / 4u;
    var sum = 0.0;
    for (var i = lane; i < fours; i += WG) {
        let v = x[token * fours + i];
        sum = dot_add(sum, v, v);
    }
    let scale = inverseSqrt(sum_row(lane, sum) / f32(params.dim) + params.eps);
    for (var first = 0u; first < fours; first += WG) {
        let i = first + lane;
        var v = vec4(0.0);
        if (i < fours) {
            v = x[token * fours + i] * scale * w[i];
        }
        put_four(token, i, v, i < fours, lane);
    }
}
