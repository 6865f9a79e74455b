// w as iq4_xs: codes, then a signed byte s for each stretch, then an f16 d for 256; x = d s value.

#import iq4

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let s = f32(unpack4xI8(byte_at(4u * behind() + at)).x);
    let d = f16_at(2u * behind() + params.rows * stretches() / 2u + at / 8u);
    return iq4(row, i, d * s);
}
