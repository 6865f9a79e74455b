// Access to an f16 KV cache: keys by octets, groups of eight elements, values by quads, groups of four.

// Elements as they are stored.
alias Octet = vec4<u32>;
alias Quad = vec2<u32>;

@group(0) @binding(1) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec2<u32>>;

fn row_start(row: u32) -> u32 {
    return row * (params.kv_heads * params.head_dim / 8u);
}

fn key(start: u32, i: u32) -> Octet {
    return k_cache[start + i];
}

fn low(k: Octet) -> vec4<f32> {
    return vec4(unpack2x16float(k.x), unpack2x16float(k.y));
}

fn high(k: Octet) -> vec4<f32> {
    return vec4(unpack2x16float(k.z), unpack2x16float(k.w));
}

fn value(start: u32, i: u32) -> Quad {
    return v_cache[2u * start + i];
}

fn four(v: Quad) -> vec4<f32> {
    return vec4(unpack2x16float(v.x), unpack2x16float(v.y));
}
