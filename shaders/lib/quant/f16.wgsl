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

fn numbers(row: u32, i: u32) -> Numbers {
    let at = 4u * row * blocks() + i;
    let a = w[at];
    let b = w[at + blocks()];
    let c = w[at + 2u * blocks()];
    let d = w[at + 3u * blocks()];
    return Numbers(low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d));
}
