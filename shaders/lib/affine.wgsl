// w as codes q of BITS bits, a stream in each row from the lowest bit on; behind all of them an
// f32 scale and an f32 bias for 32 numbers; x = scale q + bias.

#import octet
#import dot_octet
#import words

@group(0) @binding(0) var<storage, read> w: array<u32>;

// Four codes, `i` times four codes from the beginning of the row.
fn four(row: u32, i: u32) -> vec4<f32> {
    let bits = bits_at(row * (params.cols / 32u) * BITS, 4u * BITS * i);
    return vec4<f32>((vec4(bits) >> (BITS * vec4(0u, 1u, 2u, 3u))) & vec4((1u << BITS) - 1u));
}

fn octet(row: u32, i: u32) -> Octet {
    let groups = params.cols / 32u;
    let at = params.rows * groups * BITS + 2u * (row * groups + i / 4u);
    let scale = bitcast<f32>(w[at]);
    let bias = bitcast<f32>(w[at + 1u]);
    return Octet(scale * four(row, 2u * i) + bias, scale * four(row, 2u * i + 1u) + bias);
}
