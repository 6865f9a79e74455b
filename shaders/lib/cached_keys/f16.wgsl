// Access to the keys of an f16 KV cache by pairs of elements: two f16 per word.

@group(0) @binding(1) var<storage, read> k_cache: array<u32>;

fn row_start(row: u32) -> u32 {
    return row * (params.kv_heads * params.head_dim / 2u);
}

fn key(start: u32, i: u32) -> vec2<f32> {
    return unpack2x16float(k_cache[start + i]);
}
