// w as f32: rows padded with zeros to whole octets, 32 bytes each.

#import octet
#import dot_octet

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;

fn octet(row: u32, i: u32) -> Octet {
    let at = 2u * (row * octets() + i);
    return Octet(w[at], w[at + 1u]);
}
