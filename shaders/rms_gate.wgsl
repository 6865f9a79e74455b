// y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i] * silu(gate[t, g, i])
//
// x, gate, y: [tokens, groups, dim] f32.  w: [dim] f32.  One workgroup per token and group.

#import grid
#import state
#import reduce
#import activation

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, groups: u32, dim: u32, eps: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> gate: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let unit = unit_of(group, groups);
    if (group.y >= min(params.tokens, state.active_rows) || unit >= params.groups) {
        return;
    }
    let base = (group.y * params.groups + unit) * params.dim;
    var sum = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        sum += x[base + i] * x[base + i];
    }
    let scale = inverseSqrt(reduce_sum(lane, sum) / f32(params.dim) + params.eps);
    for (var i = lane.index; i < params.dim; i += WG) {
        y[base + i] = x[base + i] * scale * w[i] * silu(gate[base + i]);
    }
}
