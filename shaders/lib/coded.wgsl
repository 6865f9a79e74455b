// Stretches of codes of planes.

#import stretch

// Codes in two's complement: moved up to where the sign of a byte is, which the scale makes up for.
fn signed(c: Codes, scale: vec2<f32>) -> Stretch {
    let up = vec4(8u - BITS);
    return Stretch(c.lo << up, c.hi << up, scale / f32(1u << (8u - BITS)), vec2(0.0));
}

// Codes from 0 on.
fn unsigned(c: Codes, scale: vec2<f32>, min: vec2<f32>) -> Stretch {
    return Stretch(c.lo, c.hi, scale, min);
}
