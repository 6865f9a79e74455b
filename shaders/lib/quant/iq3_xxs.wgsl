// w as iq3_xxs: an f16 d; for 4 numbers a byte, the row of the grid; for 32 numbers a word of
// 4 times 7 signs and a scale s of 4 bits; x = d (s + 1/2) / 2 (+-row).

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 25u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let rows = u16_at(b, 2u + 2u * o);
    let signs = bits_at(b, 8u * (66u + o / 4u * 4u));
    let d = f16_at(b, 0u) * (0.5 + f32(signs >> 28u)) * 0.5;
    let q = vec2(grid4(rows & 0xffu), grid4(rows >> 8u));
    return signed(d, q, even((signs >> (7u * (o % 4u))) & 0x7fu));
}
