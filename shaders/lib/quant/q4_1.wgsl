// w as q4_1: 32 nibbles times an f16 scale, plus an f16 minimum.
//
// First the nibbles of all blocks, an octet in 4 bytes: number j in the low half of byte j,
// number j + 4 in its high half. Then scale and minimum of all blocks, a word each.

#import octet

@group(0) @binding(0) var<storage, read> w: array<u32>;

// Scale and minimum.
fn line_of(row: u32, i: u32) -> vec2<f32> {
    let block = row * (params.cols / 32u) + i / 4u;
    let lines = params.rows * (params.cols / 8u);
    return unpack2x16float(w[lines + block]);
}

fn quants(row: u32, i: u32) -> Octet {
    let word = w[row * (params.cols / 8u) + i];
    return Octet(
        vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu)),
        vec4<f32>(unpack4xU8((word >> 4u) & 0x0f0f0f0fu)),
    );
}

fn octet(row: u32, i: u32) -> Octet {
    let line = line_of(row, i);
    let n = quants(row, i);
    return Octet(line.x * n.lo + line.y, line.x * n.hi + line.y);
}

fn dot_octet(row: u32, i: u32, v: Octet) -> f32 {
    let line = line_of(row, i);
    let ones = Octet(vec4(1.0), vec4(1.0));
    return line.x * dot8(quants(row, i), v) + line.y * dot8(ones, v);
}
