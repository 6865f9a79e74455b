// w as iq2_xxs: an f16 d; for 32 numbers 4 bytes of rows of the grid and a word of 4 times 7
// signs and a scale s of 4 bits; x = d (s + 1/2) / 4 (+-row).

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 17u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 4u;
    let words = bytes_at(b, 2u + i % 32u / 4u * 8u);
    let d = f16_at(b, 0u) * (0.5 + f32(words.y >> 28u)) * 0.25;
    let q = grid8((words.x >> (8u * o)) & 0xffu);
    return signed(d, q, even((words.y >> (7u * o)) & 0x7fu));
}
