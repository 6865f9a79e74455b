// y[t, i] = x[t, i] + bias(i); -inf if i is a stop token before position stop_from
//
// x, y: [tokens, vocab] f32.  biases: [sequences, capacity], one per token id.  One lane per
// element; the lanes of a workgroup search the biases of its elements together.

#import grid
#import state
#import sampler
#import biases
#import keys

const WG = 256u;
const UNITS = 256u;

struct Params { tokens: u32, vocab: u32, capacity: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> biases: array<Bias>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> added: array<f32, WG>;

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
    added[lane] = 0.0;
    workgroupBarrier();
    let row = state.row[token];
    let count = min(samplers[row.sequence].bias_count, params.capacity);
    for (var j = lane; j < count; j += WG) {
        let bias = biases[row.sequence * params.capacity + j];
        if (bias.token - first < UNITS) {
            added[bias.token - first] = bias.bias;
        }
    }
    workgroupBarrier();
    if (row.position + 1u < samplers[row.sequence].stop_from) {
        for (var j = lane; j < min(samplers[row.sequence].stop_count, STOPS); j += WG) {
            let element = samplers[row.sequence].stops[j] - first;
            if (element < UNITS) {
                added[element] = minus_inf();
            }
        }
    }
    workgroupBarrier();
    let i = first + lane;
    if (i >= params.vocab) {
        return;
    }
    // Without a bias, -0 stays -0.
    let v = x[token * params.vocab + i];
    y[token * params.vocab + i] = select(v + added[lane], v, added[lane] == 0.0);
}
