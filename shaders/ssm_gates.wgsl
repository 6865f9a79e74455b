// y[t, h] = rate[h] dt, y[t, heads + h] = dt, dt = clamp(softplus(x[t, h] + bias[h]), low, high)
//
// x: [tokens, heads] f32.  rate, bias: [heads] f32.  y: [tokens, 2, heads] f32.

#import grid
#import state
#import softplus

const WG = 64u;
const UNITS = 64u;

struct Params { tokens: u32, heads: u32, low: f32, high: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> rate: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let h = unit_of(group, groups) * WG + lane;
    let t = group.y;
    if (t >= min(params.tokens, state.active_rows) || h >= params.heads) {
        return;
    }
    let dt = min(max(softplus(x[t * params.heads + h] + bias[h]), params.low), params.high);
    y[2u * t * params.heads + h] = rate[h] * dt;
    y[(2u * t + 1u) * params.heads + h] = dt;
}
