// y[t, i] += -ln(-ln(u(seed, position[t], i)))
//
// y: [tokens, vocab] f32; -inf is unchanged, and so are all values if the temperature is 0.
// u = (word >> 9 + 1/2) 2^-23; the word of i is lane i % 4 of Philox4x32-10 with key seed and
// counter (i / 4, position + 1, 0, 0).  One lane per element.

#import grid
#import state
#import sampler
#import philox
#import chance
#import ln

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = unit_of(group, groups) * UNITS + lane;
    if (group.y >= min(params.tokens, state.active_rows) || i >= params.vocab) {
        return;
    }
    let row = state.row[group.y];
    if (samplers[row.sequence].temperature <= 0.0) {
        return;
    }
    let key = vec2(samplers[row.sequence].seed_lo, samplers[row.sequence].seed_hi);
    let word = philox(vec4(i / 4u, row.position + 1u, 0u, 0u), key)[i % 4u];
    y[group.y * params.vocab + i] += -ln(-ln(chance(word)));
}
