// Removes the values of a row of logits whose keys are below `least`. The kernel imports `filter`.

fn keys_below(v: vec4<f32>, least: u32) -> vec4<bool> {
    return vec4(key_of(v.x), key_of(v.y), key_of(v.z), key_of(v.w)) < vec4(least);
}

fn keep_from(lane: u32, least: u32) {
    select_parts(lane, max(least, ABOVE), END);
    for (var i = lane; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        remove_four(i, keys_below(v0, least));
        remove_four(i + 4u * WG, keys_below(v1, least));
    }
    // All values of the other parts are removed, without a read.
    select_parts(lane, ABOVE, least);
    for (var i = lane; i < row_len(); i += WG) {
        y[base + id_of(i)] = minus_inf();
    }
    for (var i = lane; i < live_count; i += WG) {
        maxima[first_part + live[i]] = minus_inf();
    }
}
