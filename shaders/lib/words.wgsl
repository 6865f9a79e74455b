// Access to w by word, half word or byte index. Sections of w are ordered so that each is aligned
// for its elements.

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;

fn word_at(i: u32) -> u32 {
    return w[i / 4u][i % 4u];
}

// Words i and i + 1; i is even.
fn pair_at(i: u32) -> vec2<u32> {
    let four = w[i / 4u];
    return select(four.xy, four.zw, (i & 2u) != 0u);
}

fn f32_at(i: u32) -> f32 {
    return bitcast<f32>(word_at(i));
}

fn half_at(i: u32) -> u32 {
    return (word_at(i / 2u) >> (16u * (i % 2u))) & 0xffffu;
}

fn f16_at(i: u32) -> f32 {
    return unpack2x16float(half_at(i)).x;
}

fn byte_at(i: u32) -> u32 {
    return (word_at(i / 4u) >> (8u * (i % 4u))) & 0xffu;
}
