// Codes of 4 bits: one plane.

#import planes

const BITS = 4u;

fn codes(row: u32, i: u32) -> Codes {
    return fields4(w[stretch_at(row, i)]);
}
