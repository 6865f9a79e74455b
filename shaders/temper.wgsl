// y[t, i] /= temperature
//
// y: [tokens, vocab] f32.  No change if the temperature is 0 (greedy) or dynamic (see
// dynamic_temper).
// One lane per element.

#import grid
#import state
#import sampler

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
    let sequence = state.row[group.y].sequence;
    let temperature = samplers[sequence].temperature;
    if (temperature > 0.0 && samplers[sequence].dynatemp_range <= 0.0) {
        y[group.y * params.vocab + i] /= temperature;
    }
}
