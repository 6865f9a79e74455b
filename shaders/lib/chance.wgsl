// Random number in (0, 1) from a word: the midpoint of one of 2^23 equal intervals.

fn chance(word: u32) -> f32 {
    return (f32(word >> 9u) + 0.5) * 1.1920928955078125e-7;
}
