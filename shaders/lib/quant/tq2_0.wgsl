// w as tq2_0: 256 ternary digits, an f16 d; x = d (q - 1).

#import trits
#import dot_octet

fn octet(row: u32, i: u32) -> Octet {
    return centred(f16_at(block_of(row, i), 64u), trits(row, i), 1.0);
}
