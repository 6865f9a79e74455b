// An f32 scale for 32 numbers of a row, behind codes of a byte each: rows padded with zeros to
// whole octets.

#import octet
#import dot_octet

@group(0) @binding(0) var<storage, read> w: array<u32>;

fn scale_of(row: u32, i: u32) -> f32 {
    let codes = params.rows * octets() * 2u;
    return bitcast<f32>(w[codes + row * ((params.cols + 31u) / 32u) + i / 4u]);
}

// The codes of an octet.
fn bytes_of(row: u32, i: u32) -> vec2<u32> {
    let at = (row * octets() + i) * 2u;
    return vec2(w[at], w[at + 1u]);
}
