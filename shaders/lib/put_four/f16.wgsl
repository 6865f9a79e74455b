// Stores rows of y in f16, four columns per lane: an eighth, because the largest f16 is 65504, which activations may exceed.
// f16 has full precision from 6e-5. The driver rounds to the nearest or toward zero.

@group(0) @binding(Y) var<storage, read_write> y: array<vec2<u32>>;

// Stores columns 4 i to 4 i + 4 of a row if `stored`.
fn put_four(row: u32, i: u32, v: vec4<f32>, stored: bool, lane: u32) {
    if (stored) {
        let eighth = 0.125 * v;
        y[8u * row * blocks() + i] = vec2(pack2x16float(eighth.xy), pack2x16float(eighth.zw));
    }
}
