// Rotation of queries, and of keys that are stored in a KV cache: one workgroup per token and head, those of keys
// after those of queries. The kernel defines `stored`, the head to store, which begins with its keys, and load_value,
// which adds pair p of its value, elements i and i + 1 of v, if there are values; it imports `store` or `store_keys`.

#import groups
#import pages
#import rope

// Maximum number of pairs of a head.
const PAIRS = 288u;

// Rotated element i of the head of k at base.
fn turned_k(base: u32, i: u32, position: u32) -> f32 {
    if (i >= params.rope_dim) {
        return k[base + i];
    }
    let f = select(i / 2u, i % (params.rope_dim / 2u), params.half_split != 0u);
    let pair = pair_of(f);
    let x = turned(vec2(k[base + pair.x], k[base + pair.y]), turn_of(f, position));
    return select(x.y, x.x, i == pair.x);
}

fn groups() -> u32 { return params.heads + params.kv_heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let position = state.row[token].position;
    if (position >= state.context) {
        return;
    }
    if (head < params.heads) {
        let base = (token * params.heads + head) * params.head_dim;
        for (var i = lane.index; i < params.rope_dim / 2u; i += WG) {
            let pair = base + pair_of(i);
            let x = turned(vec2(q[pair.x], q[pair.y]), turn_of(i, position));
            q[pair.x] = x.x;
            q[pair.y] = x.y;
        }
        return;
    }
    let pairs = params.head_dim / 2u;
    let source = (token * params.kv_heads + head - params.heads) * params.head_dim;
    for (var p = lane.index; p < pairs; p += WG) {
        let i = 2u * p;
        stored[p] = vec2(turned_k(source, i, position), turned_k(source, i + 1u, position));
        load_value(p, source + i);
    }
    workgroupBarrier();
    store(row_at(pages_of(state.row[token].sequence), position), head - params.heads, lane.index);
}
