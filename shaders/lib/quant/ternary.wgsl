// w as ternary: digits, then an f32 scale d for each row; x = d (q - 1).

#import trits
#import dot_octet

fn octet(row: u32, i: u32) -> Octet {
    let scales = 2u * (params.rows / 4u) * octets();
    return centred(bitcast<f32>(w[scales + row]), trits(row, i), 1.0);
}
