// y[t, i] = -inf above the smallest value whose softmax is at least xtc_threshold, with probability
// xtc_probability
//
// y: [tokens, vocab] f32.  Ties with that value are kept.  One workgroup per token.  The random
// number is drawn from the first word of Philox4x32-10 with key seed and counter (0, position + 1,
// 1, 0).

#import filter
#import softmax
#import philox
#import chance

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

// Negated values whose weight is at least `least`; -inf for others.
fn likely(v: vec4<f32>, i: u32, peak: f32, least: f32) -> vec4<f32> {
    let some = (v > vec4(minus_inf())) & (v <= vec4(peak));
    return select(vec4(minus_inf()), -v, some & (four_weights(v, i, peak) >= vec4(least)));
}

fn larger_of(top: vec4<f32>, v: vec4<f32>) -> vec4<f32> {
    return select(top, v, v > top);
}

fn is_on(row: Row) -> bool {
    let key = vec2(samplers[row.sequence].seed_lo, samplers[row.sequence].seed_hi);
    let word = philox(vec4(0u, row.position + 1u, 1u, 0u), key).x;
    return chance(word) < samplers[row.sequence].xtc_probability;
}

fn filter_row(row: Row, lane: Lane) {
    let peak = peak_of(lane);
    let least_weight = samplers[row.sequence].xtc_threshold * sum_of(lane, peak);
    // The maximum of negated values is the negated minimum.
    var top = vec4(minus_inf());
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        top = larger_of(top, likely(v0, i, peak, least_weight));
        top = larger_of(top, likely(v1, i + 4u * WG, peak, least_weight));
    }
    let last = -reduce_max(lane, max(max(top.x, top.y), max(top.z, top.w)));
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        remove_four(i, v0 > vec4(last));
        remove_four(i + 4u * WG, v1 > vec4(last));
    }
}
