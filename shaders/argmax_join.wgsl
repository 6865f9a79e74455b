// ids[t] = the id among parts[t, :] with the largest x[t, id], ties by lowest id
//
// x: [tokens, vocab] f32.  parts: [tokens, parts], the results of argmax_part.  ids: [tokens], NO_TOKEN if the
// largest value is not finite.  One workgroup per token.

#import tokens256
#import best
#import keys

struct Params { tokens: u32, vocab: u32, parts: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> parts: array<u32>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn compute(token: u32, lane: Lane) {
    var value = minus_inf();
    var id = NO_TOKEN;
    for (var p = lane.index; p < params.parts; p += WG) {
        let other = parts[token * params.parts + p];
        let v = select(x[token * params.vocab + min(other, params.vocab - 1u)], minus_inf(), other == NO_TOKEN);
        if (before(v, other, value, id)) {
            value = v;
            id = other;
        }
    }
    reduce_best(lane, value, id);
    if (lane.index == 0u) {
        ids[token] = select(NO_TOKEN, best_id[0], is_finite(best_value[0]));
    }
}
