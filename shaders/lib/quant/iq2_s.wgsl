// w as iq2_s: per 32 elements 4 bytes with the lower bits of the grid rows, and a word of signs;
// then a byte with the upper 2 bits of the rows, and a byte with two 4-bit scales s; an f16 d per
// 256; x = d (s + 1/2) / 4 (+-row).

#import iq_grid

const GRID = 2048u;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let all = params.rows * blocks();
    let upper = (vec4(byte_at(4u * section(2u) + at)) >> vec4(0u, 2u, 4u, 6u)) & vec4(3u);
    let s = (vec2(byte_at(4u * section(2u) + all + at)) >> vec2(0u, 4u)) & vec2(15u);
    let rows = eights(bytes_of(word_at(section(0u) + at)) | (upper << vec4(8u)));
    let scale = f16_at(2u * section(2u) + all + at / 8u) * (0.5 + vec2<f32>(s)) * 0.25;
    return with_signs(rows, word_at(section(1u) + at), scale);
}
