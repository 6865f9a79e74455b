// y[t, i] = -inf if bit i of the mask of the sequence is 0
//
// y: [tokens, vocab] f32.  masks: [sequences, words], bit i % 32 of word i / 32.  Rows of a
// sequence without a mask are unchanged.  One lane per element.

#import grid
#import state
#import sampler
#import keys

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, vocab: u32, words: u32 }

@group(0) @binding(0) var<storage, read> masks: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
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
    let sequence = state.row[group.y].sequence;
    if (samplers[sequence].masked == 0u) {
        return;
    }
    let word = masks[sequence * params.words + i / 32u];
    if (((word >> (i % 32u)) & 1u) == 0u) {
        y[group.y * params.vocab + i] = minus_inf();
    }
}
