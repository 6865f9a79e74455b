// Passes over a row of logits by the WG lanes of a workgroup: a lane loads four elements, WG apart, at a time, which
// are all in flight. The kernel defines `logit` and `row_len()`.

// Indices of four elements; those after the end of the row are the last element again.
fn four_ids(i: u32) -> vec4<u32> {
    return min(vec4(i) + vec4(0u, 1u, 2u, 3u) * WG, vec4(max(row_len(), 1u) - 1u));
}

fn four_logits(i: u32) -> vec4<f32> {
    let id = four_ids(i);
    return vec4(logit(id.x), logit(id.y), logit(id.z), logit(id.w));
}

// Which of four elements are in the row.
fn four_valid(i: u32) -> vec4<bool> {
    return vec4(i) + vec4(0u, 1u, 2u, 3u) * WG < vec4(row_len());
}

fn sum_four(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
