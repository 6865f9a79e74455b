// Rotation of keys that are stored in a KV cache.

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
