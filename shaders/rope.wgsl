// x[t, h, :] = rot(x[t, h, :], position)
//
// x: [tokens, heads, head_dim] f32.  freqs: [rope_dim / 2] f32, radians per position.
// One workgroup per token and head.

#import groups
#import rope

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, head_dim: u32, rope_dim: u32, half_split: u32, magnitude: f32 }

@group(0) @binding(0) var<storage, read> freqs: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let position = state.row[token].position;
    let base = (token * params.heads + head) * params.head_dim;
    for (var i = lane.index; i < params.rope_dim / 2u; i += WG) {
        let pair = base + pair_of(i);
        let y = turned(vec2(x[pair.x], x[pair.y]), turn_of(i, position));
        x[pair.x] = y.x;
        x[pair.y] = y.y;
    }
}
