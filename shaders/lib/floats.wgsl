// Products of float weights. Each type defines Weights, a block of W before it is converted to f32,
// `weights(row, i)`, and `numbers_of(weights)`.

#import blocks
#import numbers

// A block of x.
alias X = Numbers;

fn x_of(v: Numbers) -> X {
    return v;
}

fn numbers(row: u32, i: u32) -> Numbers {
    return numbers_of(weights(row, i));
}

fn product(w: Weights, x: X) -> f32 {
    let v = numbers_of(w);
    var lo = dot_add(0.0, v[0], x[0]);
    lo = dot_add(lo, v[1], x[1]);
    lo = dot_add(lo, v[2], x[2]);
    lo = dot_add(lo, v[3], x[3]);
    var hi = dot_add(0.0, v[4], x[4]);
    hi = dot_add(hi, v[5], x[5]);
    hi = dot_add(hi, v[6], x[6]);
    hi = dot_add(hi, v[7], x[7]);
    return lo + hi;
}
