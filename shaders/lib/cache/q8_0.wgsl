// Access to a q8_0 KV cache by pairs of elements: two signed bytes and a scale.

#import cached_keys

@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

fn value(start: u32, i: u32) -> vec2<f32> {
    return pair_of_codes(v_cache[start + i / 2u], v_cache[scale_word(start, i / 2u)], i);
}
