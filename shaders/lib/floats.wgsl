// Products of weights that are floats.

#import numbers

const MINIMA = false;

// Stretch `i` of a row times x; sums of x are not asked for.
fn product(row: u32, i: u32, x: Numbers, sums: vec2<f32>) -> f32 {
    let v = numbers(row, i);
    let lo = dot_add(dot_add(dot_add(dot_add(0.0, v[0], x[0]), v[1], x[1]), v[2], x[2]), v[3], x[3]);
    let hi = dot_add(dot_add(dot_add(dot_add(0.0, v[4], x[4]), v[5], x[5]), v[6], x[6]), v[7], x[7]);
    return lo + hi;
}
