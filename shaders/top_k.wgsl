// y[i] = -inf below the k-th largest
//
// y: [vocab] f32.  Equals of the k-th stay.  One workgroup.

#import state
#import select

const WG = 256u;
const UNITS = 1u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

fn weight_of(v: f32) -> u32 {
    return 1u;
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
    if (state.live == 0u || state.top_k == 0u || state.top_k >= params.vocab) {
        return;
    }
    let least = threshold(lane, state.top_k);
    for (var i = lane; i < params.vocab; i += WG) {
        if (key_of(y[i]) < least) {
            y[i] = minus_inf();
        }
    }
}
