// y[i] = -inf where softmax(y)[i] < min_p max(softmax(y)), which is y[i] < max(y) + ln(min_p)
//
// y: [vocab] f32.  One workgroup.

#import state
#import reduce
#import keys
#import ln

const WG = 256u;
const UNITS = 1u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(lane: Lane) {
    if (state.live == 0u || state.min_p <= 0.0) {
        return;
    }
    var top = minus_inf();
    for (var i = lane.index; i < params.vocab; i += WG) {
        top = select(top, y[i], y[i] > top);
    }
    let least = reduce_max(lane, top) + ln(state.min_p);
    for (var i = lane.index; i < params.vocab; i += WG) {
        if (y[i] < least) {
            y[i] = minus_inf();
        }
    }
}
