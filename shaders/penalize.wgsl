// y[i] = penalty(x[i]) / temperature
//
// x, y: [vocab] f32.  history: [sequences, context], token by position.  A token among the last
// min(repeat_last, 1024, position + 1) is penalised once, towards less likely.
// One lane per element; the lanes of a workgroup mark its penalised elements together.

#import grid
#import state

const WG = 256u;
const UNITS = 256u;
const LAST_MAX = 1024u;

struct Params { vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> history: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> marked: array<atomic<u32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = unit_of(group, groups) * UNITS;
    if (state.live == 0u || first >= params.vocab) {
        return;
    }
    atomicStore(&marked[lane], 0u);
    workgroupBarrier();
    let first_token = state.row[0].sequence * state.context;
    let count = state.row[0].position + 1u;
    let last = min(min(state.repeat_last, LAST_MAX), count);
    for (var j = lane; j < last; j += WG) {
        let element = history[first_token + count - 1u - j] - first;
        if (element < UNITS) {
            atomicStore(&marked[element], 1u);
        }
    }
    workgroupBarrier();
    let i = first + lane;
    if (i >= params.vocab) {
        return;
    }
    var v = x[i];
    if (atomicLoad(&marked[lane]) != 0u) {
        v = select(v * state.repeat_penalty, v / state.repeat_penalty, v > 0.0);
    }
    y[i] = v / state.temperature;
}
