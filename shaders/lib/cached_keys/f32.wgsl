// Access to the keys of an f32 KV cache by pairs of elements.

@group(0) @binding(1) var<storage, read> k_cache: array<vec2<f32>>;

fn row_start(row: u32) -> u32 {
    return row * (params.kv_heads * params.head_dim / 2u);
}

fn key(start: u32, i: u32) -> vec2<f32> {
    return k_cache[start + i];
}
