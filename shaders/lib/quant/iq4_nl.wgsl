// w as iq4_nl: codes, then an f16 scale d for each stretch; x = d value.

#import iq4

fn stretch(row: u32, i: u32) -> Stretch {
    return iq4(row, i, f16_at(2u * behind() + stretch_at(row, i)));
}
