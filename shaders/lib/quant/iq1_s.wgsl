// w as iq1_s: per 8 elements a byte with the lower bits of the grid row; per 32 elements 16 bits:
// the upper 3 bits of four rows, a 3-bit scale s, a sign; an f16 d per 256; x = d (2 s + 1) (row +-
// 1/8).

#import iq1_grid

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let bits = half_at(2u * section(1u) + at);
    let upper = (vec4(bits) >> vec4(0u, 3u, 6u, 9u)) & vec4(7u);
    let rows = eights(bytes_of(word_at(section(0u) + at)) | (upper << vec4(8u)));
    let d = f16_at(2u * section(1u) + params.rows * blocks() + at / 8u);
    let scale = d * f32(2u * ((bits >> 12u) & 7u) + 1u);
    return with_shifts(rows, vec4(bits >> 15u), vec2(scale));
}
