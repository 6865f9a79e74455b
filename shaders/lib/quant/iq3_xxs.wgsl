// w as iq3_xxs: per 4 elements a byte, the grid row; per 32 elements a word with 4 groups of 7
// signs and a 4-bit scale s; an f16 d per 256; x = d (s + 1/2) / 2 (+-row).

#import iq_grid

const GRID = 256u;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let names = pair_at(section(0u) + 2u * at);
    let bits = word_at(section(2u) + at);
    let rows = Rows(fours(bytes_of(names.x)), fours(bytes_of(names.y)));
    let signs = even(vec4(bits) >> vec4(0u, 7u, 14u, 21u));
    let scale = f16_at(2u * section(3u) + at / 8u) * (0.5 + f32(bits >> 28u)) * 0.5;
    return with_signs(rows, signs, vec2(scale));
}
