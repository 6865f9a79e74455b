// Access to an f16 KV cache by pairs of elements: two f16 per word.

#import cached_keys

@group(0) @binding(2) var<storage, read> v_cache: array<u32>;

fn value(start: u32, i: u32) -> vec2<f32> {
    return unpack2x16float(v_cache[start + i]);
}
