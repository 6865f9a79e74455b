// mu[sequence[t]] -= eta (-log2(softmax(x[t, :])[ids[t]]) - tau)
//
// x: [tokens, vocab] f32, the logits that the token was sampled from.  maxima: [tokens, parts], those of its parts.
// ids: [tokens].  One workgroup per token.

#import tokens256
#import sampler
#import live
#import softmax

const LN_2 = 0.69314718;

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> samplers: array<Sampler>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

// Index of the first element of the row.
var<private> base: u32;
// Whether the sequence uses Mirostat: uniform over lanes.
var<workgroup> wanted: bool;

fn logit(i: u32) -> f32 {
    return x[base + id_of(i)];
}

fn compute(token: u32, lane: Lane) {
    let sequence = state.row[token].sequence;
    if (lane.index == 0u) {
        wanted = samplers[sequence].mirostat_tau > 0.0;
    }
    if (!workgroupUniformLoad(&wanted)) {
        return;
    }
    base = token * params.vocab;
    first_part = token * params.parts;
    select_parts(lane.index, ABOVE, END);
    let peak = peak_of(lane);
    let total = sum_of(lane, peak);
    if (lane.index == 0u && ids[token] != NO_TOKEN) {
        let surprise = (distance_of(x[base + ids[token]], peak) + ln(total)) / LN_2;
        let error = surprise - samplers[sequence].mirostat_tau;
        samplers[sequence].mirostat_mu -= samplers[sequence].mirostat_eta * error;
    }
}
