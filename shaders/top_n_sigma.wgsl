// y[t, i] = -inf below max(y[t, :]) - n sigma(y[t, :])
//
// y: [tokens, vocab] f32.  sigma: the standard deviation of the values above -inf.  One workgroup
// per token.

#import filter
#import keep_from

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn is_on(row: Row) -> bool {
    return samplers[row.sequence].top_n_sigma > 0.0;
}

fn filter_row(row: Row, lane: Lane) {
    var some = vec4(0.0);
    var sum = vec4(0.0);
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        let counted0 = four_valid(i) & (v0 > vec4(minus_inf()));
        let counted1 = four_valid(i + 4u * WG) & (v1 > vec4(minus_inf()));
        some += select(vec4(0.0), vec4(1.0), counted0) + select(vec4(0.0), vec4(1.0), counted1);
        sum += select(vec4(0.0), v0, counted0) + select(vec4(0.0), v1, counted1);
    }
    let count = reduce_sum(lane, sum_four(some));
    let mean = reduce_sum(lane, sum_four(sum)) / count;
    var squares = vec4(0.0);
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        let d0 = select(vec4(0.0), v0 - mean, four_valid(i) & (v0 > vec4(minus_inf())));
        let d1 = select(vec4(0.0), v1 - mean, four_valid(i + 4u * WG) & (v1 > vec4(minus_inf())));
        squares += d0 * d0 + d1 * d1;
    }
    let sigma = sqrt(reduce_sum(lane, sum_four(squares)) / count);
    let least = peak_of(lane) - samplers[row.sequence].top_n_sigma * sigma;
    keep_from(lane.index, key_of(least));
}
