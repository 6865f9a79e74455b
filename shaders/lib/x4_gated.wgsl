// One row of gated activations, used as x.

#import activation

// Columns 4 i to 4 i + 4; zeros beyond the end of the row.
fn x4(first: u32, i: u32) -> vec4<f32> {
    if (4u * i < params.cols) {
        let g = gate[i];
        let act = vec4(
            activate(params.activation, g.x),
            activate(params.activation, g.y),
            activate(params.activation, g.z),
            activate(params.activation, g.w),
        );
        return act * up[i];
    }
    return vec4(0.0);
}
