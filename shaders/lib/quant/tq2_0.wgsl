// w as tq2_0: 256 times 2 bits, an f16 d; x = d (q - 1).

#import blocks

const BLOCK = 256u;
const WORDS = 17u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let q = fields(bytes_at(b, 32u * (o / 16u) + 8u * (o % 4u)), o % 16u / 4u * 2u, 3u);
    return centred(f16_at(b, 64u), q, 1.0);
}
