// y[t, i] = penalty(x[t, i])
//
// x, y: [tokens, vocab] f32.  history: [sequences, context], token by position.  A token among the
// last min(repeat_last, 1024, position + 1) is penalised once, towards less likely.
// One lane per element; the lanes of a workgroup mark its penalised elements together.

#import grid
#import state
#import sampler

const WG = 256u;
const UNITS = 256u;
const LAST_MAX = 1024u;

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> history: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> marked: array<atomic<u32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = unit_of(group, groups) * UNITS;
    let token = group.y;
    if (token >= min(params.tokens, state.live) || first >= params.vocab) {
        return;
    }
    atomicStore(&marked[lane], 0u);
    workgroupBarrier();
    let row = state.row[token];
    let penalty = samplers[row.sequence].repeat_penalty;
    let first_token = row.sequence * state.context;
    let count = row.position + 1u;
    let last = min(min(samplers[row.sequence].repeat_last, LAST_MAX), count);
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
    let at = token * params.vocab + i;
    var v = x[at];
    if (atomicLoad(&marked[lane]) != 0u) {
        v = select(v * penalty, v / penalty, v > 0.0);
    }
    y[at] = v;
}
