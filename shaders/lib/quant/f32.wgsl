// w as f32: rows padded with zeros to whole stretches.

#import floats

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;

fn numbers(row: u32, i: u32) -> Numbers {
    let at = 8u * stretch_at(row, i);
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
