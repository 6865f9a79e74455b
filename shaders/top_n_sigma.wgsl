// y[t, i] = -inf below max(y[t, :]) - n sigma(y[t, :])
//
// y: [tokens, vocab] f32.  sigma: the standard deviation of the values above -inf.  One workgroup
// per token.

#import filter
#import softmax

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn filter_row(row: Row, lane: Lane) {
    let n = samplers[row.sequence].top_n_sigma;
    if (n <= 0.0) {
        return;
    }
    var some = 0.0;
    var sum = 0.0;
    for (var i = lane.index; i < params.vocab; i += WG) {
        if (logit(i) > minus_inf()) {
            some += 1.0;
            sum += logit(i);
        }
    }
    let count = reduce_sum(lane, some);
    let mean = reduce_sum(lane, sum) / count;
    var squares = 0.0;
    for (var i = lane.index; i < params.vocab; i += WG) {
        if (logit(i) > minus_inf()) {
            squares += (logit(i) - mean) * (logit(i) - mean);
        }
    }
    let sigma = sqrt(reduce_sum(lane, squares) / count);
    keep_from(lane.index, peak_of(lane) - n * sigma);
}
