// Digits of w as tq1_0: 240 as five base-3 digits of 48 bytes, 16 as four digits of 4 bytes; an f16
// stands behind. A byte is a fraction of 256 whose digits come from above.
//
// Digit n of the first 32 bytes gives 32 neighbours, then digit n of 16 bytes, then of 4 bytes.

#import block_of

const BLOCK = 256u;
const WORDS = 14u;
const POWERS = array(1u, 3u, 9u, 27u, 81u);

// Digit n of four bytes, for 3^n; they stay apart, for a byte of the product is cut off.
fn digits(bytes: u32, power: u32) -> u32 {
    let rest = (unpack4xU8(bytes) * power) & vec4(0xffu);
    return pack4xU8((rest * 3u) >> vec4(8u));
}

// Eight digits, each one more than it stands for, in bytes.
fn trits(row: u32, i: u32) -> vec2<u32> {
    let b = block_of(row, i);
    let o = i % 32u;
    if (o >= 30u) {
        let bytes = w[b + 12u];
        let n = 2u * (o - 30u);
        return vec2(digits(bytes, POWERS[n]), digits(bytes, POWERS[n + 1u]));
    }
    let first = o < 20u;
    let bytes = bytes_at(b, select(32u + o % 2u * 8u, o % 4u * 8u, first));
    let power = POWERS[select((o - 20u) / 2u, o / 4u, first)];
    return vec2(digits(bytes.x, power), digits(bytes.y, power));
}
