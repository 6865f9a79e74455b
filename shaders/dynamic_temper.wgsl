// y[t, i] /= low + (high - low) (entropy / ln count)^exponent, with dynamic temperature
//
// y: [tokens, vocab] f32.  low = max(0, temperature - range), high = temperature + range; count:
// number of values above -inf.  One workgroup per token.

#import filter
#import softmax

// Minimum temperature, so that quotients stay finite.
const COLDEST = 1e-20;

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn is_on(row: Row) -> bool {
    return samplers[row.sequence].temperature > 0.0 && samplers[row.sequence].dynatemp_range > 0.0;
}

fn filter_row(row: Row, lane: Lane) {
    let middle = samplers[row.sequence].temperature;
    let range = samplers[row.sequence].dynatemp_range;
    var some = vec4(0.0);
    for (var i = lane.index; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        some += select(vec4(0.0), vec4(1.0), four_valid(i) & (v0 > vec4(minus_inf())));
        some += select(vec4(0.0), vec4(1.0), four_valid(i + 4u * WG) & (v1 > vec4(minus_inf())));
    }
    let count = reduce_sum(lane, sum_four(some));
    let peak = peak_of(lane);
    let entropy = entropy_of(lane, peak, sum_of(lane, peak));
    // A single candidate is sampled at any temperature.
    if (count <= 1.0) {
        return;
    }
    let part = clamp(entropy / ln(count), 1e-30, 1.0);
    let low = max(0.0, middle - range);
    let power = exp(samplers[row.sequence].dynatemp_exponent * ln(part));
    let temperature = max(low + (middle + range - low) * power, COLDEST);
    for (var i = lane.index; i < row_len(); i += 4u * WG) {
        let v = four_logits(i) / temperature;
        let four = four_ids(i);
        let valid = four_valid(i);
        if (valid.x) { y[base + id_of(four.x)] = v.x; }
        if (valid.y) { y[base + id_of(four.y)] = v.y; }
        if (valid.z) { y[base + id_of(four.z)] = v.z; }
        if (valid.w) { y[base + id_of(four.w)] = v.w; }
    }
}
