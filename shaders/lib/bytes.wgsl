// Eight numbers from eight bytes in two words.

#import octet

// The same bits of each byte.
fn fields(bytes: vec2<u32>, shift: u32, mask: u32) -> vec2<u32> {
    return (bytes >> vec2(shift)) & vec2(mask * 0x01010101u);
}

// Bit j of the lowest 8 as byte j.
fn spread(bits: u32) -> vec2<u32> {
    return (vec2(bits & 15u, (bits >> 4u) & 15u) * 0x00204081u) & vec2(0x01010101u);
}

// `scale * q + min` of unsigned bytes.
fn line(scale: f32, q: vec2<u32>, min: f32) -> Octet {
    return Octet(
        scale * vec4<f32>(unpack4xU8(q.x)) + min,
        scale * vec4<f32>(unpack4xU8(q.y)) + min,
    );
}

// `scale * (q - offset)` of unsigned bytes.
fn centred(scale: f32, q: vec2<u32>, offset: f32) -> Octet {
    return Octet(
        scale * (vec4<f32>(unpack4xU8(q.x)) - offset),
        scale * (vec4<f32>(unpack4xU8(q.y)) - offset),
    );
}

// `scale * q` of signed bytes.
fn scaled(scale: f32, q: vec2<u32>) -> Octet {
    return Octet(scale * vec4<f32>(unpack4xI8(q.x)), scale * vec4<f32>(unpack4xI8(q.y)));
}
