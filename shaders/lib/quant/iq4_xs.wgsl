// w as iq4_xs: codes, then a signed byte s per block, then an f16 d per 256; x = d s value.

#import iq4

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let s = f32(unpack4xI8(byte_at(4u * codes_end() + at)).x);
    let d = f16_at(2u * codes_end() + params.rows * blocks() / 2u + at / 8u);
    return iq4(row, i, d * s);
}
