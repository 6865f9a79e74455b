// y[t, i] = -inf outside the smallest set of the largest values whose softmax sums to top_p
//
// y: [tokens, vocab] f32.  Ties with the last are kept, and the largest always.  One workgroup per
// token.
// Probability mass is summed as integers in units of 2^-31, so that the order does not matter.

#import filter
#import mass
#import threshold
#import keep_from

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn is_on(row: Row) -> bool {
    return samplers[row.sequence].top_p < 1.0;
}

fn filter_row(row: Row, lane: Lane) {
    peak = peak_of(lane);
    units = ONE / sum_of(lane, peak);
    let target_weight = max(u32(samplers[row.sequence].top_p * ONE), 1u);
    keep_from(lane.index, threshold(lane.index, target_weight));
}
