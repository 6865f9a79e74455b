// w as i8: signed bytes q, then an f32 scale d for 32 numbers; x = d q.

#import scales32
#import bytes

fn octet(row: u32, i: u32) -> Octet {
    return scaled(scale_of(row, i), bytes_of(row, i));
}
