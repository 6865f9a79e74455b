// The codebook of a type, which stands behind the blocks, and signs of what it has.

fn codebook(word: u32) -> u32 {
    return w[params.rows * (params.cols / BLOCK) * WORDS + word];
}

// 8 bytes.
fn codebook8(i: u32) -> vec2<u32> {
    return vec2(codebook(2u * i), codebook(2u * i + 1u));
}

// `scale * q`, negated where bit j of `signs` is set.
fn signed(scale: f32, q: vec2<u32>, signs: u32) -> Octet {
    let negative = spread(signs);
    return Octet(
        scale * vec4<f32>(unpack4xU8(q.x)) * (1.0 - 2.0 * vec4<f32>(unpack4xU8(negative.x))),
        scale * vec4<f32>(unpack4xU8(q.y)) * (1.0 - 2.0 * vec4<f32>(unpack4xU8(negative.y))),
    );
}

// Seven signs and the eighth, which makes their number even.
fn even(signs: u32) -> u32 {
    return signs | ((countOneBits(signs) & 1u) << 7u);
}
