// ids[t] = argmax(x[t, :]), ties by lowest id
//
// x: [tokens, vocab] f32; NaN is ignored.  ids: [tokens], NO_TOKEN if the maximum is not finite.
// One workgroup per token.

#import tokens256
#import keys
#import best

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn compute(token: u32, lane: Lane) {
    let base = token * params.vocab;
    var value = minus_inf();
    var id = NO_TOKEN;
    for (var i = lane.index; i < params.vocab; i += WG) {
        let v = x[base + i];
        if (v > value) {
            value = v;
            id = i;
        }
    }
    reduce_best(lane, value, id);
    if (lane.index == 0u) {
        // Tests the exponent, because comparisons with NaN are not reliable.
        let finite = (bitcast<u32>(best_value[0]) & 0x7f800000u) != 0x7f800000u;
        ids[token] = select(NO_TOKEN, best_id[0], finite);
    }
}
