// ids[t] = argmax(x[t, :]), ties by lowest id
//
// x: [tokens, vocab] f32; NaN is ignored.  ids: [tokens], NO_TOKEN if the maximum is not finite.
// One workgroup per token.

#import tokens256
#import best4

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

// Index of the first element of the row.
var<private> base: u32;

fn logit(i: u32) -> f32 {
    return x[base + i];
}

fn row_len() -> u32 {
    return params.vocab;
}

fn compute(token: u32, lane: Lane) {
    base = token * params.vocab;
    var best = no_best();
    for (var i = lane.index; i < params.vocab; i += 16u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        let v2 = four_logits(i + 8u * WG);
        let v3 = four_logits(i + 12u * WG);
        best = better_of(best, v0, four_ids(i));
        best = better_of(best, v1, four_ids(i + 4u * WG));
        best = better_of(best, v2, four_ids(i + 8u * WG));
        best = better_of(best, v3, four_ids(i + 12u * WG));
    }
    reduce_four(lane, best);
    if (lane.index == 0u) {
        ids[token] = select(NO_TOKEN, best_id[0], is_finite(best_value[0]));
    }
}
