// y[t, i] = -inf below the k-th largest
//
// y: [tokens, vocab] f32.  Ties with the k-th are kept.  One workgroup per token.

#import filter
#import select

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

fn filter_row(row: Row, lane: Lane) {
    let k = samplers[row.sequence].top_k;
    if (k == 0u || k >= params.vocab) {
        return;
    }
    let least = threshold(lane.index, k);
    keep_keys_from(lane.index, least);
}
