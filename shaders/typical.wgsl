// y[t, i] = -inf outside the smallest set of the tokens with the lowest |-ln p - entropy| whose
// softmax sums to typical_p
//
// y: [tokens, vocab] f32.  Ties with the last are kept.  One workgroup per token.  Probability mass
// is summed as integers in units of 2^-31, so that the order does not matter.

#import filter
#import mass
#import select

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

// Distance below the peak of a token of typical probability.
var<private> typical: f32;

fn rank_of(v: f32) -> f32 {
    return -abs((peak - v) - typical);
}

fn ranks_below(v: vec4<f32>, least: u32) -> vec4<bool> {
    let ranks = vec4(rank_of(v.x), rank_of(v.y), rank_of(v.z), rank_of(v.w));
    return vec4(key_of(ranks.x), key_of(ranks.y), key_of(ranks.z), key_of(ranks.w)) < vec4(least);
}

fn is_on(row: Row) -> bool {
    return samplers[row.sequence].typical_p < 1.0;
}

fn filter_row(row: Row, lane: Lane) {
    peak = peak_of(lane);
    let total = sum_of(lane, peak);
    units = ONE / total;
    typical = entropy_of(lane, peak, total) - ln(total);
    let least = search(lane.index, max(u32(samplers[row.sequence].typical_p * ONE), 1u), false);
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        remove_four(i, ranks_below(v0, least));
        remove_four(i + 4u * WG, ranks_below(v1, least));
    }
}
