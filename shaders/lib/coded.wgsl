// Blocks from codes in planes.

#import block

// Two's complement codes: shifted up to the sign bit of the byte; the scale compensates.
fn signed(c: Codes, scale: vec2<f32>) -> Block {
    let up = vec4(8u - BITS);
    return Block(c.lo << up, c.hi << up, scale / f32(1u << (8u - BITS)), vec2(0.0));
}

// Unsigned codes.
fn unsigned(c: Codes, scale: vec2<f32>, min: vec2<f32>) -> Block {
    return Block(c.lo, c.hi, scale, min);
}
