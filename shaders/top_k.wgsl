// y[t, i] = -inf below the k-th largest
//
// y: [tokens, vocab] f32.  Ties with the k-th are kept.  One workgroup per token.

#import state
#import sampler
#import logits
#import select

const WG = 256u;
const UNITS = 1u;

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn rank_of(v: f32) -> f32 {
    return v;
}

fn weight_of(v: f32) -> u32 {
    return 1u;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if (group.y >= min(params.tokens, state.active_rows)) {
        return;
    }
    let k = samplers[state.row[group.y].sequence].top_k;
    if (k == 0u || k >= params.vocab) {
        return;
    }
    base = group.y * params.vocab;
    let least = threshold(lane, k);
    for (var i = lane; i < params.vocab; i += WG) {
        if (key_of(logit(i)) < least) {
            y[base + i] = minus_inf();
        }
    }
}
