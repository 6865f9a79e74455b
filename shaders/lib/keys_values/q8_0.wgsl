// Access to a q8_0 KV cache: keys by octets, groups of eight elements, values by quads, groups of four.

#import cache_q8_0

// Two words of codes and the scale.
struct Octet {
    low: u32,
    high: u32,
    scale: f32,
}

// A word of codes and the scale.
struct Quad {
    codes: u32,
    scale: f32,
}

@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

fn key(start: u32, i: u32) -> Octet {
    let at = start + 2u * i;
    return Octet(k_cache[at], k_cache[at + 1u], scale_in(k_cache[scale_word(start, 2u * i)], 2u * i));
}

fn low(k: Octet) -> vec4<f32> {
    return k.scale * vec4<f32>(unpack4xI8(k.low));
}

fn high(k: Octet) -> vec4<f32> {
    return k.scale * vec4<f32>(unpack4xI8(k.high));
}

fn value(start: u32, i: u32) -> Quad {
    return Quad(v_cache[start + i], scale_in(v_cache[scale_word(start, i)], i));
}

fn four(v: Quad) -> vec4<f32> {
    return v.scale * vec4<f32>(unpack4xI8(v.codes));
}
