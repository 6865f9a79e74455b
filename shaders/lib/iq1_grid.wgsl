// Rows of eight values -1, 0 or 1 of the grid, stored plus 128; 1 is added or subtracted.

#import iq_grid

const GRID = 4096u;

// Subtracts 1 where `minus` is 1, otherwise adds 1.
fn shifted(rows: vec4<u32>, minus: vec4<u32>) -> vec4<u32> {
    return (rows + select(vec4(0x01010101u), vec4(0xfefefeffu), minus != vec4(0u))) ^ vec4(0x80808080u);
}

// `minus` for each row.
fn with_shifts(rows: Rows, minus: vec4<u32>, scale: vec2<f32>) -> Block {
    return Block(
        shifted(rows.lo, minus.xxyy),
        shifted(rows.hi, minus.zzww),
        0.125 * scale,
        vec2(0.0),
    );
}
