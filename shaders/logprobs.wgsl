// logprobs[sequence[t]] = ln softmax(x[t, :]) of ids[t] and of the 20 largest, ties by lowest id
//
// x: [tokens, vocab] f32.  ids: [tokens].  logprobs: [sequences], written if `logprobs` of the
// sampler is set.  One workgroup per token, which finds the largest values one by one, each
// the first of its column, which then is searched for the next.

#import tokens256
#import sampler
#import softmax
#import peak
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

fn row_len() -> u32 {
    return params.vocab;
}

// The element of each column that sorts first: a column is one of every WG elements.
var<workgroup> column_value: array<f32, WG>;
var<workgroup> column_id: array<u32, WG>;

// Finds the first element of the column of each lane.
fn load_columns(lane: u32) {
    var value = minus_inf();
    var id = NO_TOKEN;
    for (var i = lane; i < params.vocab; i += 4u * WG) {
        let v = four_logits(i);
        for (var k = 0u; k < 4u; k++) {
            let at = i + k * WG;
            if (at < params.vocab && before(v[k], at, value, id)) {
                value = v[k];
                id = at;
            }
        }
    }
    column_value[lane] = value;
    column_id[lane] = id;
}

// Finds the element of a column that sorts first after (last, last_id), by all lanes.
fn next_of_column(lane: Lane, column: u32, last: f32, last_id: u32) {
    var value = minus_inf();
    var id = NO_TOKEN;
    for (var i = column + WG * lane.index; i < params.vocab; i += WG * WG) {
        let v = logit(i);
        if (before(v, i, value, id) && before(last, last_id, v, i)) {
            value = v;
            id = i;
        }
    }
    reduce_best(lane, value, id);
    workgroupBarrier();
    if (lane.index == 0u) {
        column_value[column] = best_value[0];
        column_id[column] = best_id[0];
    }
    workgroupBarrier();
}

fn compute(token: u32, lane: Lane) {
    let sequence = state.row[token].sequence;
    if (samplers[sequence].logprobs == 0u) {
        return;
    }
    base = token * params.vocab;
    let peak = peak_of(lane);
    let all = peak + ln(sum_of(lane, peak));
    load_columns(lane.index);
    var count = 0u;
    for (var round = 0u; round < LARGEST; round++) {
        reduce_best(lane, column_value[lane.index], column_id[lane.index]);
        workgroupBarrier();
        let last = best_value[0];
        let last_id = best_id[0];
        workgroupBarrier();
        if (lane.index == 0u && last_id != NO_TOKEN) {
            logprobs[sequence].tokens[round] = last_id;
            logprobs[sequence].logprobs[round] = last - all;
            count = round + 1u;
        }
        next_of_column(lane, last_id % WG, last, last_id);
    }
    if (lane.index == 0u) {
        let id = ids[token];
        logprobs[sequence].token = id;
        // The value of NO_TOKEN has no meaning.
        logprobs[sequence].logprob = logit(min(id, params.vocab - 1u)) - all;
        logprobs[sequence].count = count;
    }
}
