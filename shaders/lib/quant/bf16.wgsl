// w as bf16, the upper halves of f32: per row, first the first eight columns of all blocks, then
// the next eight of all blocks, and so on.

#import floats
#import words

fn widened(v: vec2<u32>) -> vec4<f32> {
    let even = bitcast<vec2<f32>>(v << vec2(16u));
    let odd = bitcast<vec2<f32>>(v & vec2(0xffff0000u));
    return vec4(even.x, odd.x, even.y, odd.y);
}

// Index of the first vector of a block. Products load the blocks of two rows one after the other: as numbers,
// both fill too many registers.
struct Weights {
    at: u32,
}

fn weights(row: u32, i: u32) -> Weights {
    return Weights(4u * row * blocks() + i);
}

fn numbers_of(v: Weights) -> Numbers {
    let a = w[v.at];
    let b = w[v.at + blocks()];
    let c = w[v.at + 2u * blocks()];
    let d = w[v.at + 3u * blocks()];
    return Numbers(
        widened(a.xy),
        widened(a.zw),
        widened(b.xy),
        widened(b.zw),
        widened(c.xy),
        widened(c.zw),
        widened(d.xy),
        widened(d.zw),
    );
}
