// y[i] = -inf outside the smallest set of the largest whose softmax sums to top_p
//
// y: [vocab] f32.  Equals of the last stay, and the largest always.  One workgroup.
// Mass is counted in units of 2^-31, whose sums are the same in any order.

#import state
#import reduce
#import select

const WG = 256u;
const UNITS = 1u;
const ONE = 2147483648.0;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

var<private> peak: f32;
var<private> units: f32;

fn weight_of(v: f32) -> u32 {
    return u32(min(exp(v - peak) * units + 0.5, ONE));
}

@compute @workgroup_size(WG)
fn main(lane: Lane) {
    if (state.live == 0u || state.top_p >= 1.0) {
        return;
    }
    var top = minus_inf();
    for (var i = lane.index; i < params.vocab; i += WG) {
        top = select(top, y[i], y[i] > top);
    }
    peak = reduce_max(lane, top);
    var sum = 0.0;
    for (var i = lane.index; i < params.vocab; i += WG) {
        if (y[i] <= peak) {
            sum += exp(y[i] - peak);
        }
    }
    units = ONE / reduce_sum(lane, sum);
    let least = threshold(lane.index, max(u32(state.top_p * ONE), 1u));
    for (var i = lane.index; i < params.vocab; i += WG) {
        if (key_of(y[i]) < least) {
            y[i] = minus_inf();
        }
    }
}
