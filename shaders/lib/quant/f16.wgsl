// w as f16: per row, first the first eight columns of all blocks, then the next eight of all
// blocks, and so on.

#import floats
#import words

fn low(v: vec4<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(v.x), unpack2x16float(v.y));
}

fn high(v: vec4<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(v.z), unpack2x16float(v.w));
}

struct Weights {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

fn weights(row: u32, i: u32) -> Weights {
    let at = 4u * row * blocks() + i;
    return Weights(w[at], w[at + blocks()], w[at + 2u * blocks()], w[at + 3u * blocks()]);
}

fn numbers_of(v: Weights) -> Numbers {
    return Numbers(
        low(v.a),
        high(v.a),
        low(v.b),
        high(v.b),
        low(v.c),
        high(v.c),
        low(v.d),
        high(v.d),
    );
}
