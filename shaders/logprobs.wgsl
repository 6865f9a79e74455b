// logprobs[sequence[t]] = ln softmax(x[t, :]) of ids[t] and of the 20 largest, ties by lowest id
//
// x: [tokens, vocab] f32.  ids: [tokens].  logprobs: [sequences], written if `logprobs` of the
// sampler is set.  One workgroup per token, which finds the largest values one by one.

#import tokens256
#import sampler
#import softmax
#import best
#import logprobs

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> logprobs: array<Logprobs>;
@group(0) @binding(3) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

// Index of the first element of the row.
var<private> base: u32;

fn logit(i: u32) -> f32 {
    return x[base + i];
}

fn compute(token: u32, lane: Lane) {
    let sequence = state.row[token].sequence;
    if (samplers[sequence].logprobs == 0u) {
        return;
    }
    base = token * params.vocab;
    let peak = peak_of(lane);
    let all = peak + ln(sum_of(lane, peak));
    var count = 0u;
    var last = -minus_inf();
    var last_id = 0xffffffffu;
    for (var round = 0u; round < LARGEST; round++) {
        var value = minus_inf();
        var id = 0xffffffffu;
        for (var i = lane.index; i < params.vocab; i += WG) {
            let v = logit(i);
            if (before(v, i, value, id) && (round == 0u || before(last, last_id, v, i))) {
                value = v;
                id = i;
            }
        }
        reduce_best(lane, value, id);
        workgroupBarrier();
        last = best_value[0];
        last_id = best_id[0];
        workgroupBarrier();
        if (lane.index == 0u && last_id != 0xffffffffu) {
            logprobs[sequence].tokens[round] = last_id;
            logprobs[sequence].logprobs[round] = last - all;
            count = round + 1u;
        }
    }
    if (lane.index == 0u) {
        let id = ids[token];
        logprobs[sequence].token = id;
        // The value of NO_TOKEN has no meaning.
        logprobs[sequence].logprob = logit(min(id, params.vocab - 1u)) - all;
        logprobs[sequence].count = count;
    }
}
