// y[t, i] = x[t, i] - multiplier base^(n(i) - allowed) if n(i) >= allowed, n(i): length of the
// longest repetition that i continues
//
// x, y: [tokens, vocab] f32; on entry y is x.  history: [sequences, context], token by position.  breakers:
// [sequences, words], one bit per token: whether it ends a repetition.  A repetition is a suffix of
// the history that also occurs earlier in its last dry_penalty_last_n tokens; its length is limited to
// 1024.
// One workgroup per token.

#import tokens256
#import sampler
#import ln

const LONGEST = 1024u;

struct Params { tokens: u32, vocab: u32, words: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> history: array<u32>;
@group(0) @binding(2) var<storage, read> breakers: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// Number of tokens after the last breaker.
var<workgroup> unbroken: atomic<u32>;

fn breaks(sequence: u32, token: u32) -> bool {
    let word = min(token / 32u, params.words - 1u);
    let bits = breakers[sequence * params.words + word];
    return token < params.vocab && ((bits >> (token % 32u)) & 1u) == 1u;
}

// Lowers y[at] to v. The longest repetition has the largest penalty, so the minimum is the result.
fn lower(at: u32, v: f32) {
    var old = atomicLoad(&y[at]);
    loop {
        if (bitcast<f32>(old) <= v) {
            break;
        }
        let swap = atomicCompareExchangeWeak(&y[at], old, bitcast<u32>(v));
        if (swap.exchanged) {
            break;
        }
        old = swap.old_value;
    }
}

fn compute(token: u32, lane: Lane) {
    let base = token * params.vocab;
    let row = state.row[token];
    let multiplier = samplers[row.sequence].dry_multiplier;
    if (multiplier <= 0.0) {
        return;
    }
    let known = min(row.position + 1u, state.context);
    let seen = min(samplers[row.sequence].dry_penalty_last_n, known);
    // The last token; the one `k` before it is `history[last - k]`.
    let last = row.sequence * state.context + known - 1u;
    if (lane.index == 0u) {
        atomicStore(&unbroken, seen);
    }
    workgroupBarrier();
    for (var k = lane.index; k < seen; k += WG) {
        if (breaks(row.sequence, history[last - k])) {
            atomicMin(&unbroken, k);
        }
    }
    workgroupBarrier();
    let longest = min(atomicLoad(&unbroken), LONGEST);
    let allowed = samplers[row.sequence].dry_allowed;
    let rate = ln(samplers[row.sequence].dry_base);
    for (var k = lane.index + 1u; k < seen; k += WG) {
        var n = 0u;
        while (n < min(longest, seen - k) && history[last - k - n] == history[last - n]) {
            n += 1u;
        }
        let next = history[last - k + 1u];
        if (n >= allowed && next < params.vocab) {
            let penalty = multiplier * exp(min(f32(n - allowed) * rate, 88.0));
            lower(base + next, x[base + next] - penalty);
        }
    }
}
