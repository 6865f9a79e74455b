// Access to a q8_0 KV cache by groups of eight elements: two words and a scale.

#import cache_q8_0
#import eight

@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

fn eight_of(codes: vec2<u32>, scales: u32, i: u32) -> Eight {
    let scale = scale_in(scales, 2u * i);
    return Eight(scale * vec4<f32>(unpack4xI8(codes.x)), scale * vec4<f32>(unpack4xI8(codes.y)));
}

fn key(start: u32, i: u32) -> Eight {
    let at = start + 2u * i;
    return eight_of(vec2(k_cache[at], k_cache[at + 1u]), k_cache[scale_word(start, 2u * i)], i);
}

fn value(start: u32, i: u32) -> Eight {
    let at = start + 2u * i;
    return eight_of(vec2(v_cache[at], v_cache[at + 1u]), v_cache[scale_word(start, 2u * i)], i);
}
