// w as iq2_xs: per 8 elements 16 bits (9 for the grid row, 7 signs); per 16 elements a 4-bit scale
// s; an f16 d per 256; x = d (s + 1/2) / 4 (+-row).

#import iq_grid

const GRID = 1024u;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let words = pair_at(section(0u) + 2u * at).xxyy >> vec4(0u, 16u, 0u, 16u);
    let s = (vec2(byte_at(4u * section(2u) + at)) >> vec2(0u, 4u)) & vec2(15u);
    let d = f16_at(2u * section(2u) + params.rows * blocks() / 2u + at / 8u);
    let scale = d * (0.5 + vec2<f32>(s)) * 0.25;
    return with_signs(eights(words & vec4(511u)), even(words >> vec4(9u)), scale);
}
