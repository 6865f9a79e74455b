// Access to an f32 KV cache by groups of eight elements.

#import eight

@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<f32>>;

fn row_start(row: u32) -> u32 {
    return row * (params.kv_heads * params.head_dim / 4u);
}

fn key(start: u32, i: u32) -> Eight {
    return Eight(k_cache[start + 2u * i], k_cache[start + 2u * i + 1u]);
}

fn value(start: u32, i: u32) -> Eight {
    return Eight(v_cache[start + 2u * i], v_cache[start + 2u * i + 1u]);
}
