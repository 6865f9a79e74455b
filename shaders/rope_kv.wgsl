// q = rot(q, position); k_cache[row(position)] = rot(k, position); v_cache[row(position)] = v
//
// q: [tokens, heads, head_dim] f32.  k, v: [tokens, kv_heads, head_dim] f32.
// freqs: [rope_dim / 2] f32, radians per position.  Caches: [rows, kv_heads, head_dim]; page tables
// map positions to rows; head_dim is even and at most 576.  One workgroup per token and head, those
// of k and v after those of q.
// A row whose position is outside the context is unchanged.

#import grid
#import state
#import store
#import pages
#import rope
#import turned_key

const WG = 64u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, rope_dim: u32, half_split: u32, magnitude: f32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read> freqs: array<f32>;
@group(0) @binding(4) var<storage, read_write> q: array<f32>;
@group(0) @binding(7) var<storage, read> state: State;
var<immediate> params: Params;

// Maximum number of pairs of a head.
const PAIRS = 288u;

// The head to store: rotated keys, then, from PAIRS, values.
var<workgroup> stored: array<vec2<f32>, 2u * PAIRS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let head = unit_of(group, groups);
    let token = group.y;
    if (token >= min(params.tokens, state.active_rows) || head >= params.heads + params.kv_heads) {
        return;
    }
    let position = state.row[token].position;
    if (position >= state.context) {
        return;
    }
    if (head < params.heads) {
        let base = (token * params.heads + head) * params.head_dim;
        for (var i = lane; i < params.rope_dim / 2u; i += WG) {
            let pair = base + pair_of(i);
            let x = turned(vec2(q[pair.x], q[pair.y]), turn_of(i, position));
            q[pair.x] = x.x;
            q[pair.y] = x.y;
        }
        return;
    }
    let pairs = params.head_dim / 2u;
    let source = (token * params.kv_heads + head - params.heads) * params.head_dim;
    for (var p = lane; p < pairs; p += WG) {
        let i = 2u * p;
        stored[p] = vec2(turned_k(source, i, position), turned_k(source, i + 1u, position));
        stored[PAIRS + p] = vec2(v[source + i], v[source + i + 1u]);
    }
    workgroupBarrier();
    store(row_at(pages_of(state.row[token].sequence), position), head - params.heads, lane);
}
