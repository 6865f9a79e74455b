// w as iq2_xxs: for 32 numbers 4 bytes, rows of the grid, and a word of 4 times 7 signs and a
// scale s of 4 bits; an f16 d for 256; x = d (s + 1/2) / 4 (+-row).

#import iq_grid

const GRID = 512u;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let words = pair_at(section(0u) + 2u * at);
    let d = f16_at(2u * section(2u) + at / 8u);
    let signs = even(vec4(words.y) >> vec4(0u, 7u, 14u, 21u));
    let scale = d * (0.5 + f32(words.y >> 28u)) * 0.25;
    return with_signs(eights(bytes_of(words.x)), signs, vec2(scale));
}
