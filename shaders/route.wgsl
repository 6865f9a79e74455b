// ids[t, :] = the k largest of softmax(x[t, :]), y[t, s] = softmax(x[t, :])[ids[t, s]]
//
// x: [tokens, experts] f32.  ids: [tokens, k], in descending order, ties by lowest id.
// y: [tokens, k] f32; divided by their sum if `normalize` is 1.  One workgroup per token.

#import state
#import keys
#import reduce

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, experts: u32, k: u32, normalize: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> largest: atomic<u32>;
var<workgroup> lowest: atomic<u32>;

// Whether an expert sorts after the last selected one.
fn after(key: u32, id: u32, last: vec2<u32>) -> bool {
    return key < last.x || (key == last.x && id > last.y);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    lane: Lane,
) {
    let t = group.y;
    if (t >= min(params.tokens, state.active_rows)) {
        return;
    }
    let row = t * params.experts;
    let out = t * params.k;
    // Key and id; larger than any key.
    var last = vec2(0xffffffffu, 0u);
    var best = 0.0;
    var chosen = 0.0;
    for (var s = 0u; s < params.k; s++) {
        if (lane.index == 0u) {
            atomicStore(&largest, 0u);
            atomicStore(&lowest, params.experts);
        }
        workgroupBarrier();
        for (var e = lane.index; e < params.experts; e += WG) {
            let key = key_of(x[row + e]);
            if (after(key, e, last)) {
                atomicMax(&largest, key);
            }
        }
        workgroupBarrier();
        let key = atomicLoad(&largest);
        for (var e = lane.index; e < params.experts; e += WG) {
            if (key_of(x[row + e]) == key && after(key, e, last)) {
                atomicMin(&lowest, e);
            }
        }
        workgroupBarrier();
        last = vec2(key, atomicLoad(&lowest));
        workgroupBarrier();
        let value = x[row + last.y];
        if (s == 0u) {
            best = value;
        }
        let weight = exp(value - best);
        chosen += weight;
        if (lane.index == 0u) {
            ids[out + s] = last.y;
            y[out + s] = weight;
        }
    }
    var own = 0.0;
    for (var e = lane.index; e < params.experts; e += WG) {
        own += exp(x[row + e] - best);
    }
    let all = reduce_sum(lane, own);
    if (lane.index == 0u) {
        for (var s = 0u; s < params.k; s++) {
            y[out + s] /= select(all, chosen, params.normalize != 0u);
        }
    }
}
