// y[t, i] = repeated(x[t, i]) - count(i) frequency - presence, if i is among the last n tokens of
// the history
//
// x, y: [tokens, vocab] f32.  history: [sequences, context], token by position.  n =
// min(repeat_last_n, 1024, position + 1); repeated(x) = x / repeat if x > 0, otherwise x repeat.
// One lane per element; the lanes of a workgroup count its penalized elements together.

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

var<workgroup> counts: array<atomic<u32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = unit_of(group, groups) * UNITS;
    let token = group.y;
    if (token >= min(params.tokens, state.active_rows) || first >= params.vocab) {
        return;
    }
    atomicStore(&counts[lane], 0u);
    workgroupBarrier();
    let row = state.row[token];
    let first_token = row.sequence * state.context;
    let count = row.position + 1u;
    let last = min(min(samplers[row.sequence].repeat_last_n, LAST_MAX), count);
    for (var j = lane; j < last; j += WG) {
        let element = history[first_token + count - 1u - j] - first;
        if (element < UNITS) {
            atomicAdd(&counts[element], 1u);
        }
    }
    workgroupBarrier();
    let i = first + lane;
    if (i >= params.vocab) {
        return;
    }
    let at = token * params.vocab + i;
    var v = x[at];
    let times = atomicLoad(&counts[lane]);
    if (times != 0u) {
        let repeat = samplers[row.sequence].repetition_penalty;
        v = select(v * repeat, v / repeat, v > 0.0);
        let frequency = samplers[row.sequence].frequency_penalty;
        v -= f32(times) * frequency + samplers[row.sequence].presence_penalty;
    }
    y[at] = v;
}
