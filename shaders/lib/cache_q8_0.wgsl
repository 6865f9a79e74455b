// Rows of a q8_0 KV cache: the signed bytes of all heads, then an f16 scale per 32 bytes.

// Number of words of codes per row.
fn row_codes() -> u32 {
    return params.kv_heads * params.head_dim / 4u;
}

// First word of a row.
fn row_start(row: u32) -> u32 {
    return row * (row_codes() + row_codes() / 16u);
}

// Word of scales for word i of codes, and the half of it.
fn scale_word(start: u32, i: u32) -> u32 {
    return start + row_codes() + i / 16u;
}

fn scale_in(word: u32, i: u32) -> f32 {
    return unpack2x16float(word)[i / 8u % 2u];
}
