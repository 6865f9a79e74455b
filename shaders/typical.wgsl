// y[t, i] = -inf outside the smallest set of the tokens with the lowest |-ln p - entropy| whose
// softmax sums to typical_p
//
// y: [tokens, vocab] f32.  Ties with the last are kept.  One workgroup per token.  Probability mass
// is summed as integers in units of 2^-31, so that the order does not matter.

#import filter
#import mass
#import select

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

// Distance below the peak of a token of typical probability.
var<private> typical: f32;

fn rank_of(v: f32) -> f32 {
    return -abs((peak - v) - typical);
}

fn filter_row(row: Row, lane: Lane) {
    let share = samplers[row.sequence].typical_p;
    if (share >= 1.0) {
        return;
    }
    peak = peak_of(lane);
    let total = sum_of(lane, peak);
    units = ONE / total;
    typical = entropy_of(lane, peak, total) - ln(total);
    let least = threshold(lane.index, max(u32(share * ONE), 1u));
    keep_keys_from(lane.index, least);
}
