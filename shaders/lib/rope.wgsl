// Rotary position embedding (RoPE) of the pairs of a head.
//
// The kernel defines freqs, [rope_dim / 2], and rope_dim, half_split and magnitude in its Params.

#import trig

// Indices of the pair that frequency i rotates.
fn pair_of(i: u32) -> vec2<u32> {
    if (params.half_split != 0u) {
        return vec2(i, i + params.rope_dim / 2u);
    }
    return vec2(2u * i, 2u * i + 1u);
}

// (cos, sin) of frequency i at a position, times the magnitude.
fn turn_of(i: u32, position: u32) -> vec2<f32> {
    return params.magnitude * turn(f32(position) * freqs[i]);
}

fn turned(pair: vec2<f32>, t: vec2<f32>) -> vec2<f32> {
    return vec2(pair.x * t.x - pair.y * t.y, pair.x * t.y + pair.y * t.x);
}
