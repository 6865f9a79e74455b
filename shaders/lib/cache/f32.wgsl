// Access to an f32 KV cache by pairs of elements.

#import cached_keys

@group(0) @binding(2) var<storage, read> v_cache: array<vec2<f32>>;

fn value(start: u32, i: u32) -> vec2<f32> {
    return v_cache[start + i];
}
