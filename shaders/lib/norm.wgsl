// Rows of x whose first 16 elements per lane are in registers, and sums over the lanes of a row.
//
// The kernel defines x, f32, and the results y of the same shape. A row is processed by `lanes` of the WG = 256 lanes of a workgroup.

// Elements `lane`, `lane + lanes`, `lane + 2 lanes` and so on of a row; 0 after its end.
struct Elements { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

// The loads do not depend on bounds, so that all are in flight.
fn load_four(base: u32, i: u32, lanes: u32, dim: u32) -> vec4<f32> {
    let at = vec4(i) + vec4(0u, 1u, 2u, 3u) * lanes;
    let own = vec4(base) + min(at, vec4(dim - 1u));
    return select(vec4(0.0), vec4(x[own.x], x[own.y], x[own.z], x[own.w]), at < vec4(dim));
}

fn load_elements(base: u32, lane: u32, lanes: u32, dim: u32) -> Elements {
    var e = Elements();
    e.a = load_four(base, lane, lanes, dim);
    if (dim > 4u * lanes) { e.b = load_four(base, lane + 4u * lanes, lanes, dim); }
    if (dim > 8u * lanes) { e.c = load_four(base, lane + 8u * lanes, lanes, dim); }
    if (dim > 12u * lanes) { e.d = load_four(base, lane + 12u * lanes, lanes, dim); }
    return e;
}

fn store_four(base: u32, i: u32, lanes: u32, dim: u32, v: vec4<f32>) {
    if (i < dim) { y[base + i] = v.x; }
    if (i + lanes < dim) { y[base + i + lanes] = v.y; }
    if (i + 2u * lanes < dim) { y[base + i + 2u * lanes] = v.z; }
    if (i + 3u * lanes < dim) { y[base + i + 3u * lanes] = v.w; }
}

fn store_elements(base: u32, lane: u32, lanes: u32, dim: u32, e: Elements) {
    store_four(base, lane, lanes, dim, e.a);
    if (dim > 4u * lanes) { store_four(base, lane + 4u * lanes, lanes, dim, e.b); }
    if (dim > 8u * lanes) { store_four(base, lane + 8u * lanes, lanes, dim, e.c); }
    if (dim > 12u * lanes) { store_four(base, lane + 12u * lanes, lanes, dim, e.d); }
}

fn sum_of_squares(e: Elements) -> f32 {
    let s = fma(e.d, e.d, fma(e.c, e.c, fma(e.b, e.b, e.a * e.a)));
    return (s.x + s.y) + (s.z + s.w);
}

var<workgroup> norm_sums: array<f32, 272>;

fn sixteen_sums(at: u32) -> f32 {
    var sum = vec4(0.0);
    for (var i = 0u; i < 4u; i++) {
        let k = at + 4u * i;
        sum += vec4(norm_sums[k], norm_sums[k + 1u], norm_sums[k + 2u], norm_sums[k + 3u]);
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

// Sum over the `lanes` of the row, 32 or 256, in a fixed order. All lanes of the workgroup call it.
fn sum_row(lane: u32, lanes: u32, value: f32) -> f32 {
    norm_sums[lane] = value;
    workgroupBarrier();
    if (lane < 16u) {
        norm_sums[256u + lane] = sixteen_sums(16u * lane);
    }
    workgroupBarrier();
    if (lanes == 32u) {
        let first = 256u + lane / 32u * 2u;
        return norm_sums[first] + norm_sums[first + 1u];
    }
    return sixteen_sums(256u);
}
