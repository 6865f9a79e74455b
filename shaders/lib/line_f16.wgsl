// Codes q, followed by an f16 scale d and an f16 minimum m per block; x = d q + m.

#import coded

const MINIMA = true;
const UNSIGNED = true;

fn block(row: u32, i: u32) -> Block {
    let line = unpack2x16float(word_at(codes_end() + block_index(row, i)));
    return unsigned(codes(row, i), line.xx, line.yy);
}
