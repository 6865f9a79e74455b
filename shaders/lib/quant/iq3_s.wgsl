// w as iq3_s: per 4 elements a byte with the lower bits of the grid row; per 32 elements a word of
// signs, then a byte with the upper bits of the rows, then a 4-bit scale s; an f16 d per 256; x = d
// (2 s + 1) (+-row).

#import iq_grid

const GRID = 512u;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let all = params.rows * blocks();
    let names = pair_at(section(0u) + 2u * at);
    let upper = byte_at(4u * section(3u) + at);
    let s = (byte_at(4u * section(3u) + all + at / 2u) >> (4u * (i % 2u))) & 15u;
    let bits = vec4(0u, 1u, 2u, 3u);
    let rows = Rows(
        fours(bytes_of(names.x) | (((vec4(upper) >> bits) & vec4(1u)) << vec4(8u))),
        fours(bytes_of(names.y) | (((vec4(upper >> 4u) >> bits) & vec4(1u)) << vec4(8u))),
    );
    let d = f16_at(2u * section(3u) + all / 2u + all / 4u + at / 8u);
    return with_signs(rows, word_at(section(2u) + at), vec2(d * f32(2u * s + 1u)));
}
