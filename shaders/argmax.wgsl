// ids[t] = argmax(x[t, :]), ties by lowest id
//
// x: [tokens, vocab] f32; NaN is ignored.  ids: [tokens], NO_TOKEN if the maximum is not finite.
// One workgroup per token.

#import state
#import keys

const WG = 256u;
const UNITS = 1u;

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> best_value: array<f32, WG>;
var<workgroup> best_id: array<u32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let token = group.y;
    if (token >= min(params.tokens, state.active_rows)) {
        return;
    }
    let base = token * params.vocab;
    var value = minus_inf();
    var id = NO_TOKEN;
    for (var i = lane; i < params.vocab; i += WG) {
        let v = x[base + i];
        if (v > value) {
            value = v;
            id = i;
        }
    }
    best_value[lane] = value;
    best_id[lane] = id;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = best_value[lane + half];
            let other_id = best_id[lane + half];
            if (other > best_value[lane] || (other == best_value[lane] && other_id < best_id[lane])) {
                best_value[lane] = other;
                best_id[lane] = other_id;
            }
        }
    }
    if (lane == 0u) {
        // Tests the exponent, because comparisons with NaN are not reliable.
        let finite = (bitcast<u32>(best_value[0]) & 0x7f800000u) != 0x7f800000u;
        ids[token] = select(NO_TOKEN, best_id[0], finite);
    }
}
