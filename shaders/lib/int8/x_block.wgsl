// Blocks of x in q8_1: per row, the first halves of all blocks, then the second halves, then the scales and sums.

#import blocks

@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;

fn x_block(row: u32, i: u32) -> X {
    let at = 3u * row * blocks() + i;
    return X(x[at], x[at + blocks()], bitcast<vec4<f32>>(x[at + 2u * blocks()]));
}
