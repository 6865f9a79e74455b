// y[t, i] = -inf if -log2(softmax(y[t, :])[i]) > mu, except for the largest
//
// y: [tokens, vocab] f32.  One workgroup per token.

#import state
#import sampler
#import logits
#import softmax

const WG = 256u;
const UNITS = 1u;
const LN_2 = 0.69314718;

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    if (group.y >= min(params.tokens, state.active_rows)) {
        return;
    }
    let sequence = state.row[group.y].sequence;
    if (samplers[sequence].mirostat_tau <= 0.0) {
        return;
    }
    base = group.y * params.vocab;
    let peak = peak_of(lane);
    let least = peak + ln(sum_of(lane, peak)) - samplers[sequence].mirostat_mu * LN_2;
    keep_from(lane.index, min(peak, least));
}
