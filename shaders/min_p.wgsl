// y[t, i] = -inf if softmax(y[t, :])[i] < min_p max(softmax(y[t, :])), which is y[t, i] < max(y[t,
// :]) + ln(min_p)
//
// y: [tokens, vocab] f32.  One workgroup per token.

#import filter
#import ln
#import keep_from

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn is_on(row: Row) -> bool {
    return samplers[row.sequence].min_p > 0.0;
}

fn filter_row(row: Row, lane: Lane) {
    keep_from(lane.index, key_of(peak_of(lane) + ln(samplers[row.sequence].min_p)));
}
