// Behind codes q an f32 scale and an f32 bias for each stretch; x = scale q + bias. Codes of 8 bits
// are stored less 128.

#import coded

const MINIMA = true;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = behind() + 2u * stretch_at(row, i);
    let scale = f32_at(at);
    let offset = select(0.0, 128.0, BITS == 8u);
    return unsigned(codes(row, i), vec2(scale), vec2(f32_at(at + 1u) + offset * scale));
}
