// Stores rows of y in f32, four columns per lane.

@group(0) @binding(Y) var<storage, read_write> y: array<vec4<f32>>;

// Stores columns 4 i to 4 i + 4 of a row if `stored`.
fn put_four(row: u32, i: u32, v: vec4<f32>, stored: bool, lane: u32) {
    if (stored) {
        y[8u * row * blocks() + i] = v;
    }
}
