// w as i2_s: ternary digits, and behind all of them one f32 scale d; x = d (q - 1).

#import trits
#import dot_octet

fn octet(row: u32, i: u32) -> Octet {
    return centred(bitcast<f32>(w[params.rows * octets() / 2u]), trits(row, i), 1.0);
}
