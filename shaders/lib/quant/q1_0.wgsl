// w as q1_0: signs, followed by an f16 scale d per 128 elements; x = d for 1 and -d for 0.

#import codes1
#import block

const MINIMA = false;
const UNSIGNED = false;

// 1 for 1 and -1 for 0 in each byte.
fn values_of(signs: vec4<u32>) -> vec4<u32> {
    return ((signs << vec4(1u)) + vec4(0x7f7f7f7fu)) ^ vec4(0x80808080u);
}

fn block(row: u32, i: u32) -> Block {
    let c = codes(row, i);
    let d = f16_at(2u * codes_end() + block_index(row, i) / 4u);
    return Block(values_of(c.lo), values_of(c.hi), vec2(d), vec2(0.0));
}
