// y[t, i] = x[t, i] if the rules of Whisper allow token i next, otherwise -inf
//
// x, y: [tokens, vocab] f32.  masks: [sequences, words], bit i % 32 of word i / 32 is 0 for tokens
// that are never allowed.  history: [sequences, context].  One workgroup per token.
//
// The first token of a transcript is neither `blank` nor `eot`.  With timestamps, which are the last
// ids of the vocabulary: it is one of the first `initial_timestamps` timestamps; `no_timestamps` is
// not allowed; after two timestamps, or a first one, comes no timestamp; after a timestamp that
// follows text comes no text; timestamps do not decrease, and only the start of a segment may equal
// the last one.  If all timestamps together are more likely than any text, no text is allowed.

#import tokens256
#import sampler
#import reduce
#import keys

struct Params { tokens: u32, vocab: u32, words: u32, context: u32, blank: u32, eot: u32, no_timestamps: u32, first_timestamp: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> masks: array<u32>;
@group(0) @binding(2) var<storage, read> history: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// Allowed ids: text below `text_end`, from `text_begin`; timestamps from `begin` to before `end`.
struct Rules {
    first: bool,
    timestamps: bool,
    text_begin: u32,
    text_end: u32,
    begin: u32,
    end: u32,
}

fn rules_of(row: Row) -> Rules {
    let sampler = samplers[row.sequence];
    let start = params.first_timestamp;
    var rules = Rules(row.position + 1u <= sampler.first, sampler.initial_timestamps != 0u, 0u, start, start, params.vocab);
    if (!rules.timestamps) {
        return rules;
    }
    if (rules.first) {
        rules.text_end = 0u;
        let count = min(sampler.initial_timestamps, params.vocab - start);
        rules.end = start + count;
        return rules;
    }
    let of_sequence = row.sequence * params.context;
    let after_timestamp = history[of_sequence + row.position] >= start;
    let alone = row.position == sampler.first;
    let pair = after_timestamp && (alone || history[of_sequence + row.position - 1u] >= start);
    for (var p = row.position + 1u; p > sampler.first; p--) {
        let token = history[of_sequence + p - 1u];
        if (token >= start) {
            rules.begin = select(token + 1u, token, after_timestamp && !pair);
            break;
        }
    }
    if (pair) {
        rules.end = start;
    } else if (after_timestamp) {
        rules.text_begin = params.eot;
    }
    return rules;
}

fn allowed(rules: Rules, sequence: u32, i: u32) -> bool {
    let word = masks[sequence * params.words + i / 32u];
    if (((word >> (i % 32u)) & 1u) == 0u) {
        return false;
    }
    if (rules.first && (i == params.blank || i == params.eot)) {
        return false;
    }
    if (!rules.timestamps) {
        return true;
    }
    if (i >= params.first_timestamp) {
        return i >= rules.begin && i < rules.end;
    }
    return i >= rules.text_begin && i < rules.text_end && i != params.no_timestamps;
}

fn compute(token: u32, lane: Lane) {
    let row = state.row[token];
    var rules = rules_of(row);
    let base = token * params.vocab;
    var text = minus_inf();
    var peak = minus_inf();
    for (var i = lane.index; i < params.vocab; i += WG) {
        if (allowed(rules, row.sequence, i)) {
            if (i < params.first_timestamp) {
                text = max(text, x[base + i]);
            } else {
                peak = max(peak, x[base + i]);
            }
        }
    }
    text = reduce_max(lane, text);
    peak = reduce_max(lane, peak);
    var sum = 0.0;
    for (var i = params.first_timestamp + lane.index; i < params.vocab; i += WG) {
        if (allowed(rules, row.sequence, i)) {
            sum += exp(x[base + i] - peak);
        }
    }
    sum = reduce_sum(lane, sum);
    // ln sum > text - peak; without timestamps the sum is 0.
    if (rules.timestamps && sum > 0.0 && sum > exp(text - peak)) {
        rules.text_end = 0u;
    }
    for (var i = lane.index; i < params.vocab; i += WG) {
        y[base + i] = select(minus_inf(), x[base + i], allowed(rules, row.sequence, i));
    }
}
