// Access to the keys of a q8_0 KV cache by pairs of elements: two signed bytes and a scale.

#import cache_q8_0

@group(0) @binding(1) var<storage, read> k_cache: array<u32>;

fn pair_of_codes(codes: u32, scales: u32, i: u32) -> vec2<f32> {
    let all = vec4<f32>(unpack4xI8(codes));
    return scale_in(scales, i / 2u) * select(all.xy, all.zw, i % 2u == 1u);
}

fn key(start: u32, i: u32) -> vec2<f32> {
    return pair_of_codes(k_cache[start + i / 2u], k_cache[scale_word(start, i / 2u)], i);
}
