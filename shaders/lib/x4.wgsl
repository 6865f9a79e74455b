// Rows of `params.cols` elements, stored contiguously in x: array<vec4<f32>>.

// Columns 4 i to 4 i + 4 of the row whose first element has index `first`; zeros beyond its end,
// where x may hold another row or stale data.
fn x4(first: u32, i: u32) -> vec4<f32> {
    let col = 4u * i;
    if (params.cols % 4u == 0u) {
        if (col < params.cols) {
            return x[first / 4u + i];
        }
        return vec4(0.0);
    }
    return vec4(
        x_number(first, col),
        x_number(first, col + 1u),
        x_number(first, col + 2u),
        x_number(first, col + 3u),
    );
}

fn x_number(first: u32, col: u32) -> f32 {
    if (col < params.cols) {
        let at = first + col;
        return x[at / 4u][at % 4u];
    }
    return 0.0;
}
