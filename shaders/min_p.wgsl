// y[t, i] = -inf if softmax(y[t, :])[i] < min_p max(softmax(y[t, :])), which is y[t, i] < max(y[t,
// :]) + ln(min_p)
//
// y: [tokens, vocab] f32.  One workgroup per token.

#import filter
#import softmax

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn filter_row(row: Row, lane: Lane) {
    let min_p = samplers[row.sequence].min_p;
    if (min_p <= 0.0) {
        return;
    }
    keep_from(lane.index, peak_of(lane) + ln(min_p));
}
