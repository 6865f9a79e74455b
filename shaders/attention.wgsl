// y[t, h, :] = softmax(scale q[t, h, :] . k[h / group, 0..=position, :]) v[h / group, 0..=position, :]
//
// q, y: [tokens, heads, head_dim] f32, head_dim even and at most 256.
// Caches: [context, kv_heads, head_dim] in pairs.  One workgroup per token and head.
//
// Online softmax over tiles of WG positions: in a tile a lane first scores one position, then
// sums one pair of elements over every parts-th position. Tiles begin at position 0, so the
// order of the sums depends on nothing but the position.

#import grid
#import state
#import cache
#import reduce

const WG = 128u;
const UNITS = 1u;
const LOWEST = -3.0e38;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<Pair>;
@group(0) @binding(2) var<storage, read> v_cache: array<Pair>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> query: array<vec2<f32>, WG>;
var<workgroup> mass: array<f32, WG>;
var<workgroup> sums: array<vec2<f32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let head = unit_of(group, groups);
    let token = group.y;
    if (token >= min(params.tokens, state.live) || head >= params.heads) {
        return;
    }
    let count = min(state.row[token].position + 1u, state.context);
    let pairs = params.head_dim / 2u;
    let base = (token * params.heads + head) * params.head_dim;
    let stride = params.kv_heads * pairs;
    let cached = head / (params.heads / params.kv_heads) * pairs;
    if (lane < pairs) {
        query[lane] = params.scale * vec2(q[base + 2u * lane], q[base + 2u * lane + 1u]);
    }
    workgroupBarrier();

    let parts = WG / pairs;
    let part = lane / pairs;
    let pair = lane % pairs;
    var peak = LOWEST;
    var total = 0.0;
    var sum = vec2(0.0);
    for (var first = 0u; first < count; first += WG) {
        let position = first + lane;
        var score = LOWEST;
        if (position < count) {
            let at = position * stride + cached;
            score = 0.0;
            for (var p = 0u; p < pairs; p++) {
                score += dot(query[p], unpack_pair(k_cache[at + p]));
            }
        }
        let top = max(peak, reduce_max(lane, score));
        let decay = exp(peak - top);
        let weight = select(0.0, exp(score - top), position < count);
        peak = top;
        mass[lane] = weight;
        total = total * decay + weight;
        sum *= decay;
        workgroupBarrier();
        if (part < parts) {
            for (var i = part; i < min(WG, count - first); i += parts) {
                sum += mass[i] * unpack_pair(v_cache[(first + i) * stride + cached + pair]);
            }
        }
    }
    let scale = 1.0 / reduce_sum(lane, total);
    sums[lane] = sum;
    workgroupBarrier();
    if (lane < pairs) {
        var all = sums[lane];
        for (var i = 1u; i < parts; i++) {
            all += sums[i * pairs + lane];
        }
        y[base + 2u * lane] = all.x * scale;
        y[base + 2u * lane + 1u] = all.y * scale;
    }
}
