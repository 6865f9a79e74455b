// Sums of four integers per lane over a workgroup, exact in any order. The kernel defines `totals`,
// initially zero.

#import lane

// Adds to totals `at` to `at + 4`.
fn total4(lane: Lane, at: u32, own: vec4<i32>) {
    atomicAdd(&totals[at], own.x);
    atomicAdd(&totals[at + 1u], own.y);
    atomicAdd(&totals[at + 2u], own.z);
    atomicAdd(&totals[at + 3u], own.w);
}
