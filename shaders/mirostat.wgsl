// y[t, i] = -inf if -log2(softmax(y[t, :])[i]) > mu, except for the largest
//
// y: [tokens, vocab] f32.  One workgroup per token.

#import filter
#import softmax
#import keep_from

const LN_2 = 0.69314718;

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn is_on(row: Row) -> bool {
    return samplers[row.sequence].mirostat_tau > 0.0;
}

fn filter_row(row: Row, lane: Lane) {
    let peak = peak_of(lane);
    let least = peak + ln(sum_of(lane, peak)) - samplers[row.sequence].mirostat_mu * LN_2;
    keep_from(lane.index, key_of(min(peak, least)));
}
