// w as iq1_m: per 8 elements a byte with the lower bits of the grid row, then a nibble with its
// upper 3 bits and a sign; per 256 elements 16 3-bit scales s in four u16, whose upper nibbles form
// the f16 d, lowest first; x = d (2 s + 1) (row +- 1/8).

#import iq1_grid

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let high = vec4(half_at(2u * section(1u) + at)) >> vec4(0u, 4u, 8u, 12u);
    let rows = eights(bytes_of(word_at(section(0u) + at)) | ((high & vec4(7u)) << vec4(8u)));
    let words = pair_at(section(1u) + params.rows * blocks() / 2u + at / 8u * 2u);
    let nibbles = (words.xxyy >> vec4(12u, 28u, 12u, 28u)) & vec4(15u);
    let d = unpack2x16float(
        nibbles.x | (nibbles.y << 4u) | (nibbles.z << 8u) | (nibbles.w << 12u),
    ).x;
    let of_64 = select(words.x, words.y, (i & 4u) != 0u) >> (16u * (i / 2u % 2u));
    let s = (vec2(of_64) >> (vec2(0u, 3u) + 6u * (i % 2u))) & vec2(7u);
    return with_shifts(rows, (high >> vec4(3u)) & vec4(1u), d * vec2<f32>(2u * s + 1u));
}
