// w as iq3_s: an f16 d; for 4 numbers a byte of the row of the grid; the upper bits of eight
// rows in a byte; for 8 numbers a byte of signs; scales s of 4 bits for 32 numbers;
// x = d (2 s + 1) (+-row).

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 28u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let rows = u16_at(b, 2u + 2u * o);
    let high = u8_at(b, 66u + o / 4u) >> (o % 4u * 2u);
    let s = (u8_at(b, 106u + o / 8u) >> (o % 8u / 4u * 4u)) & 15u;
    let q = vec2(
        grid4((rows & 0xffu) | ((high & 1u) << 8u)),
        grid4((rows >> 8u) | ((high & 2u) << 7u)),
    );
    return signed(f16_at(b, 0u) * (1.0 + 2.0 * f32(s)), q, u8_at(b, 74u + o));
}
