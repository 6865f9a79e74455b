// Softmax of a row, by a workgroup. The kernel defines `logit` and `params.vocab`.
//
// Weights are e^(v - peak); for NaN and values below peak - 87 the weight is e^-87.

#import reduce
#import keys
#import ln

fn distance_of(v: f32, peak: f32) -> f32 {
    return select(87.0, peak - v, peak - v < 87.0);
}

fn weight(v: f32, peak: f32) -> f32 {
    return exp(-distance_of(v, peak));
}

fn peak_of(lane: Lane) -> f32 {
    var top = minus_inf();
    for (var i = lane.index; i < params.vocab; i += WG) {
        top = select(top, logit(i), logit(i) > top);
    }
    return reduce_max(lane, top);
}

fn sum_of(lane: Lane, peak: f32) -> f32 {
    var sum = 0.0;
    for (var i = lane.index; i < params.vocab; i += WG) {
        sum += weight(logit(i), peak);
    }
    return reduce_sum(lane, sum);
}

fn entropy_of(lane: Lane, peak: f32, total: f32) -> f32 {
    var sum = 0.0;
    for (var i = lane.index; i < params.vocab; i += WG) {
        sum += weight(logit(i), peak) * distance_of(logit(i), peak);
    }
    return ln(total) + reduce_sum(lane, sum) / total;
}
