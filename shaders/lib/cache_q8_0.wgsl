// Rows of a KV cache in q8_0: the signed bytes of all heads, then an f16 scale for each 32 of them.

// Words of codes.
fn row_codes() -> u32 {
    return params.kv_heads * params.head_dim / 4u;
}

// Where a row begins.
fn row_start(row: u32) -> u32 {
    return row * (row_codes() + row_codes() / 16u);
}

// The word of scales that has that of word i of codes, and which half of it.
fn scale_word(start: u32, i: u32) -> u32 {
    return start + row_codes() + i / 16u;
}

fn scale_in(word: u32, i: u32) -> f32 {
    return unpack2x16float(word)[i / 8u % 2u];
}
