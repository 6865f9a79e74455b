// w as iq4_nl: codes, then an f16 scale d per block; x = d value.

#import iq4

fn block(row: u32, i: u32) -> Block {
    return iq4(row, i, f16_at(2u * codes_end() + block_index(row, i)));
}
