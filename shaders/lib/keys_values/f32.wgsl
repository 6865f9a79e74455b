// The KV cache by octets: eight f32.

#import eight

@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<f32>>;

fn key(i: u32) -> Eight {
    return Eight(k_cache[2u * i], k_cache[2u * i + 1u]);
}

fn value(i: u32) -> Eight {
    return Eight(v_cache[2u * i], v_cache[2u * i + 1u]);
}
