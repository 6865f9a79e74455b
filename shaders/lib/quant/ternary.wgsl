// w as ternary: four rows in a byte, of quarters of the matrix, the first in the lowest bits;
// byte rows padded with zeros to whole octets; then an f32 scale d for each row; x = d (q - 1).

#import bytes
#import dot_octet

@group(0) @binding(0) var<storage, read> w: array<u32>;

fn octet(row: u32, i: u32) -> Octet {
    let quarter = params.rows / 4u;
    let at = (row % quarter * octets() + i) * 2u;
    let q = fields(vec2(w[at], w[at + 1u]), 2u * (row / quarter), 3u);
    return centred(bitcast<f32>(w[2u * quarter * octets() + row]), q, 1.0);
}
