// Eight scales and eight minima of 6 bits in the 12 bytes from byte 4 of a block: 0..4 in the
// lower bits of bytes 0..4 and 4..8; 4..8 in the nibbles of bytes 8..12, and the upper bits of
// the first eight.

// Scale and minimum of numbers 32 g to 32 g + 32.
fn scale_min(b: u32, g: u32) -> vec2<f32> {
    if (g < 4u) {
        return vec2(f32(u8_at(b, 4u + g) & 63u), f32(u8_at(b, 8u + g) & 63u));
    }
    let low = u8_at(b, 8u + g);
    let scale = (low & 15u) | ((u8_at(b, g) >> 6u) << 4u);
    let min = (low >> 4u) | ((u8_at(b, 4u + g) >> 6u) << 4u);
    return vec2(f32(scale), f32(min));
}
