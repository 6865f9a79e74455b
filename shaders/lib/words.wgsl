// Numbers of any width in w: array<u32>, at bits and bytes counted from a word.

// 32 bits.
fn bits_at(word: u32, bit: u32) -> u32 {
    let at = word + bit / 32u;
    let shift = bit % 32u;
    return (w[at] >> shift) | ((w[at + 1u] << 1u) << (31u - shift));
}

// 8 bytes.
fn bytes_at(word: u32, byte: u32) -> vec2<u32> {
    return vec2(bits_at(word, 8u * byte), bits_at(word, 8u * byte + 32u));
}

fn u8_at(word: u32, byte: u32) -> u32 {
    return (w[word + byte / 4u] >> (8u * (byte % 4u))) & 0xffu;
}

// At an even byte.
fn u16_at(word: u32, byte: u32) -> u32 {
    return (w[word + byte / 4u] >> (8u * (byte % 4u))) & 0xffffu;
}

// At an even byte.
fn f16_at(word: u32, byte: u32) -> f32 {
    return unpack2x16float(u16_at(word, byte)).x;
}
