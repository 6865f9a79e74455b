// x: rows of `params.cols` f16, an eighth of the activations, padded with zeros to whole blocks.

#import blocks
#import octet

// Factor of products with eighths.
const X_WHOLE = 8.0;

// Octets; loads of vectors of f16 are split into smaller ones by some compilers.
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;

// Number of octets of a row.
fn x_pitch() -> u32 {
    return 4u * blocks();
}

fn x8(at: u32) -> Octet {
    let v = x[at];
    return octet(
        vec4(unpack2x16float(v.x), unpack2x16float(v.y)),
        vec4(unpack2x16float(v.z), unpack2x16float(v.w)),
    );
}
