// Softmax of a row, by a workgroup. The kernel defines `logit` and `row_len()`.
//
// Weights are e^(v - peak); for NaN and values below peak - 87 the weight is e^-87.

#import reduce
#import keys
#import ln
#import strides

fn distance_of(v: f32, peak: f32) -> f32 {
    return select(87.0, peak - v, peak - v < 87.0);
}

fn weight(v: f32, peak: f32) -> f32 {
    return exp(-distance_of(v, peak));
}

// Distances of four elements from the peak.
fn four_distances(v: vec4<f32>, peak: f32) -> vec4<f32> {
    let d = vec4(peak) - v;
    return select(vec4(87.0), d, d < vec4(87.0));
}

// Weights of four elements from i on, 0 after the end of the row.
fn four_weights(v: vec4<f32>, i: u32, peak: f32) -> vec4<f32> {
    return select(vec4(0.0), exp(-four_distances(v, peak)), four_valid(i));
}

fn sum_of(lane: Lane, peak: f32) -> f32 {
    var sum = vec4(0.0);
    for (var i = lane.index; i < row_len(); i += 16u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        let v2 = four_logits(i + 8u * WG);
        let v3 = four_logits(i + 12u * WG);
        sum += (four_weights(v0, i, peak) + four_weights(v1, i + 4u * WG, peak))
            + (four_weights(v2, i + 8u * WG, peak) + four_weights(v3, i + 12u * WG, peak));
    }
    return reduce_sum(lane, sum_four(sum));
}

fn entropy_of(lane: Lane, peak: f32, total: f32) -> f32 {
    var sum = vec4(0.0);
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        sum += four_weights(v0, i, peak) * four_distances(v0, peak)
            + four_weights(v1, i + 4u * WG, peak) * four_distances(v1, peak);
    }
    return ln(total) + reduce_sum(lane, sum_four(sum)) / total;
}
