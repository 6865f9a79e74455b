// Access to an f32 KV cache: keys by octets, groups of eight elements, values by quads, groups of four.

// Index of the first quad; loading eight elements at a time takes more registers than the kernels have.
alias Octet = u32;
alias Quad = vec4<f32>;

@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<f32>>;

fn row_start(row: u32) -> u32 {
    return row * (params.kv_heads * params.head_dim / 4u);
}

fn key(start: u32, i: u32) -> Octet {
    return start + 2u * i;
}

fn low(k: Octet) -> vec4<f32> {
    return k_cache[k];
}

fn high(k: Octet) -> vec4<f32> {
    return k_cache[k + 1u];
}

fn value(start: u32, i: u32) -> Quad {
    return v_cache[start + i];
}

fn four(v: Quad) -> vec4<f32> {
    return v;
}
