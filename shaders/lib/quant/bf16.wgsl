// w as bf16, the upper halves of f32: per row, first the first eight columns of all blocks, then
// the next eight of all blocks, and so on.

#import floats
#import words

fn widened(v: vec2<u32>) -> vec4<f32> {
    let even = bitcast<vec2<f32>>(v << vec2(16u));
    let odd = bitcast<vec2<f32>>(v & vec2(0xffff0000u));
    return vec4(even.x, odd.x, even.y, odd.y);
}

fn numbers(row: u32, i: u32) -> Numbers {
    let at = 4u * row * blocks() + i;
    let a = w[at];
    let b = w[at + blocks()];
    let c = w[at + 2u * blocks()];
    let d = w[at + 3u * blocks()];
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
