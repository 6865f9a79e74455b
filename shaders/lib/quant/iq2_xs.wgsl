// w as iq2_xs: for 8 numbers 16 bits (row of the grid 9, signs 7); for 16 numbers a scale s of 4
// bits; an f16 d for 256; x = d (s + 1/2) / 4 (+-row).

#import iq_grid

const GRID = 1024u;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let words = pair_at(section(0u) + 2u * at).xxyy >> vec4(0u, 16u, 0u, 16u);
    let s = (vec2(byte_at(4u * section(2u) + at)) >> vec2(0u, 4u)) & vec2(15u);
    let d = f16_at(2u * section(2u) + params.rows * stretches() / 2u + at / 8u);
    let scale = d * (0.5 + vec2<f32>(s)) * 0.25;
    return with_signs(eights(words & vec4(511u)), even(words >> vec4(9u)), scale);
}
