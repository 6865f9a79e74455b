// y[t, i] = -inf below the k-th largest
//
// y: [tokens, vocab] f32.  Ties with the k-th are kept.  One workgroup per token.

#import filter
#import threshold
#import keep_from

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn weight_of(v: f32) -> u32 {
    return 1u;
}

fn is_on(row: Row) -> bool {
    let k = samplers[row.sequence].top_k;
    return k > 0u && k < params.vocab;
}

fn filter_row(row: Row, lane: Lane) {
    keep_from(lane.index, threshold(lane.index, samplers[row.sequence].top_k));
}
