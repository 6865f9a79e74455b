// w as q8_0: 32 signed bytes times an f16 scale.
//
// First the bytes of all blocks, an octet in 8 bytes; then the scales of all blocks.

#import octet

@group(0) @binding(0) var<storage, read> w: array<vec2<u32>>;

fn scale_of(row: u32, i: u32) -> f32 {
    let block = row * (params.cols / 32u) + i / 4u;
    let scales = params.rows * (params.cols / 8u);
    let words = w[scales + block / 4u];
    let pair = unpack2x16float(select(words.x, words.y, (block & 2u) != 0u));
    return select(pair.x, pair.y, (block & 1u) != 0u);
}

fn quants(row: u32, i: u32) -> Octet {
    let words = w[row * (params.cols / 8u) + i];
    return Octet(vec4<f32>(unpack4xI8(words.x)), vec4<f32>(unpack4xI8(words.y)));
}

fn octet(row: u32, i: u32) -> Octet {
    let scale = scale_of(row, i);
    let n = quants(row, i);
    return Octet(scale * n.lo, scale * n.hi);
}

fn dot_octet(row: u32, i: u32, v: Octet) -> f32 {
    return scale_of(row, i) * dot8(quants(row, i), v);
}
