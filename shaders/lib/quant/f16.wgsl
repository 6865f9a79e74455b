// w as f16: rows padded with zeros to whole octets, 16 bytes each.

#import octet
#import dot_octet

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;

fn octet(row: u32, i: u32) -> Octet {
    let words = w[row * octets() + i];
    return Octet(
        vec4(unpack2x16float(words.x), unpack2x16float(words.y)),
        vec4(unpack2x16float(words.z), unpack2x16float(words.w)),
    );
}
