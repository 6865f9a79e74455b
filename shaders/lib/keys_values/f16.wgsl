// Access to an f16 KV cache by groups of eight elements: 16 bytes.

#import eight

@group(0) @binding(1) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<u32>>;

fn eight_of(words: vec4<u32>) -> Eight {
    return Eight(
        vec4(unpack2x16float(words.x), unpack2x16float(words.y)),
        vec4(unpack2x16float(words.z), unpack2x16float(words.w)),
    );
}

fn row_start(row: u32) -> u32 {
    return row * (params.kv_heads * params.head_dim / 8u);
}

fn key(start: u32, i: u32) -> Eight {
    return eight_of(k_cache[start + i]);
}

fn value(start: u32, i: u32) -> Eight {
    return eight_of(v_cache[start + i]);
}
