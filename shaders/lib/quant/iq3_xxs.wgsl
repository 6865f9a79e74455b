// w as iq3_xxs: for 4 numbers a byte, the row of the grid; for 32 numbers a word of 4 times 7
// signs and a scale s of 4 bits; an f16 d for 256; x = d (s + 1/2) / 2 (+-row).

#import iq_grid

const GRID = 256u;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let names = pair_at(section(0u) + 2u * at);
    let bits = word_at(section(2u) + at);
    let rows = Rows(fours(bytes_of(names.x)), fours(bytes_of(names.y)));
    let signs = even(vec4(bits) >> vec4(0u, 7u, 14u, 21u));
    let scale = f16_at(2u * section(3u) + at / 8u) * (0.5 + f32(bits >> 28u)) * 0.5;
    return with_signs(rows, signs, vec2(scale));
}
