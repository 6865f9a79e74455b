// w as f32: rows are padded with zeros to whole blocks.

#import floats

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;

// Index of the first vector of a block. Products load the blocks of two rows one after the other: both fill
// too many registers.
struct Weights {
    at: u32,
}

fn weights(row: u32, i: u32) -> Weights {
    return Weights(8u * block_index(row, i));
}

fn numbers_of(v: Weights) -> Numbers {
    let at = v.at;
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
