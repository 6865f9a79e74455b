// w as bf16, the upper halves of f32: rows padded with zeros to whole octets, 16 bytes each.

#import octet
#import dot_octet

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;

fn octet(row: u32, i: u32) -> Octet {
    let words = w[row * octets() + i];
    let even = bitcast<vec4<f32>>(words << vec4(16u));
    let odd = bitcast<vec4<f32>>(words & vec4(0xffff0000u));
    return Octet(vec4(even.x, odd.x, even.y, odd.y), vec4(even.z, odd.z, even.w, odd.w));
}
