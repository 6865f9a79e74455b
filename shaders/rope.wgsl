// x[t, h, :] = rot(x[t, h, :], position)
//
// x: [tokens, heads, head_dim] f32.  freqs: [rope_dim / 2] f32, radians per position.
// One workgroup per token and head.

#import grid
#import state
#import rope

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, head_dim: u32, rope_dim: u32, half_split: u32, magnitude: f32 }

@group(0) @binding(0) var<storage, read> freqs: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let head = unit_of(group, groups);
    let token = group.y;
    if (token >= min(params.tokens, state.active_rows) || head >= params.heads) {
        return;
    }
    let position = state.row[token].position;
    let base = (token * params.heads + head) * params.head_dim;
    for (var i = lane; i < params.rope_dim / 2u; i += WG) {
        let pair = base + pair_of(i);
        let y = turned(vec2(x[pair.x], x[pair.y]), turn_of(i, position));
        x[pair.x] = y.x;
        x[pair.y] = y.y;
    }
}
