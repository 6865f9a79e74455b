// x: rows of `params.cols` f16, an eighth of the activations, padded with zeros to whole blocks.

#import blocks

enable f16;

// Factor of products with eighths.
const X_WHOLE = 8.0;

@group(0) @binding(1) var<storage, read> x: array<vec4<f16>>;

// Columns 4 i to 4 i + 4 of a row.
fn x4(row: u32, i: u32) -> vec4<f16> {
    return x[8u * row * blocks() + i];
}
