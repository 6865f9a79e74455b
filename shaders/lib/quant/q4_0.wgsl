// w as q4_0: 32 nibbles, offset 8, times an f16 scale.
//
// First the nibbles of all blocks, an octet in 4 bytes: number j in the low half of byte j,
// number j + 4 in its high half. Then the scales of all blocks.

#import octet

@group(0) @binding(0) var<storage, read> w: array<u32>;

fn scale_of(row: u32, i: u32) -> f32 {
    let block = row * (params.cols / 32u) + i / 4u;
    let scales = params.rows * (params.cols / 8u);
    let pair = unpack2x16float(w[scales + block / 2u]);
    return select(pair.x, pair.y, (block & 1u) != 0u);
}

fn quants(row: u32, i: u32) -> Octet {
    let word = w[row * (params.cols / 8u) + i];
    return Octet(
        vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu)) - 8.0,
        vec4<f32>(unpack4xU8((word >> 4u) & 0x0f0f0f0fu)) - 8.0,
    );
}

fn octet(row: u32, i: u32) -> Octet {
    let scale = scale_of(row, i);
    let n = quants(row, i);
    return Octet(scale * n.lo, scale * n.hi);
}

fn dot_octet(row: u32, i: u32, v: Octet) -> f32 {
    return scale_of(row, i) * dot8(quants(row, i), v);
}
