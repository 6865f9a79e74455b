// w as iq2_xxs: per 32 elements 4 bytes, the grid rows, and a word with 4 groups of 7 signs and a
// 4-bit scale s; an f16 d per 256; x = d (s + 1/2) / 4 (+-row).

#import iq_grid

const GRID = 512u;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let words = pair_at(section(0u) + 2u * at);
    let d = f16_at(2u * section(2u) + at / 8u);
    let signs = even(vec4(words.y) >> vec4(0u, 7u, 14u, 21u));
    let scale = d * (0.5 + f32(words.y >> 28u)) * 0.25;
    return with_signs(eights(bytes_of(words.x)), signs, vec2(scale));
}
