// The grid of an iq type, behind all blocks: rows of four or eight numbers, a byte each.

fn grid4(i: u32) -> u32 {
    return w[params.rows * (params.cols / BLOCK) * WORDS + i];
}

fn grid8(i: u32) -> vec2<u32> {
    return vec2(grid4(2u * i), grid4(2u * i + 1u));
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
