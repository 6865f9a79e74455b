// Rows of a grid of eight times -1, 0 or 1, and 128 more; 1 is added or taken away.

#import iq_grid

const GRID = 4096u;

// Where `minus` is 1 it is taken away.
fn shifted(rows: vec4<u32>, minus: vec4<u32>) -> vec4<u32> {
    return (rows + 0x01010101u - minus * 0x02020202u) ^ vec4(0x80808080u);
}

// `minus` of each row.
fn with_shifts(rows: Rows, minus: vec4<u32>, scale: vec2<f32>) -> Stretch {
    return Stretch(
        shifted(rows.lo, minus.xxyy),
        shifted(rows.hi, minus.zzww),
        0.125 * scale,
        vec2(0.0),
    );
}
