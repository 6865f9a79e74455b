// y[i] += -ln(-ln(u(seed, position, i)))
//
// y: [vocab] f32; -inf stays.  u = (word >> 9 + 1/2) 2^-23, the word of i being lane i % 4 of
// Philox4x32-10 with key seed, counter (i / 4, position + 1, 0, 0).  One lane per element.

#import grid
#import state
#import philox
#import ln

const WG = 256u;
const UNITS = 256u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = unit_of(group, groups) * UNITS + lane;
    if (state.live == 0u || i >= params.vocab) {
        return;
    }
    let counter = vec4(i / 4u, state.row[0].position + 1u, 0u, 0u);
    let word = philox(counter, vec2(state.seed_lo, state.seed_hi))[i % 4u];
    let u = (f32(word >> 9u) + 0.5) * 1.1920928955078125e-7;
    y[i] += -ln(-ln(u));
}
