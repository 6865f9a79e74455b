// w as f32: rows are padded with zeros to whole blocks.

#import floats

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;

fn numbers(row: u32, i: u32) -> Numbers {
    let at = 8u * block_index(row, i);
    return Numbers(
        w[at],
        w[at + 1u],
        w[at + 2u],
        w[at + 3u],
        w[at + 4u],
        w[at + 5u],
        w[at + 6u],
        w[at + 7u],
    );
}
