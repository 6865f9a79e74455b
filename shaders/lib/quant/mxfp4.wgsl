// w as mxfp4: an exponent e, 32 codes of fp4; x = 2^(e - 127) value[q].

#import blocks
#import fp4

const BLOCK = 32u;
const WORDS = 5u;

// 2^(e - 128), which meets the table's doubled values.
fn half_power(e: u32) -> f32 {
    return bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u));
}

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 4u;
    let codes = fields(bytes_at(b, 1u + 8u * (o % 2u)), 4u * (o / 2u), 15u);
    return from_table(half_power(u8_at(b, 0u)), FP4, codes);
}
