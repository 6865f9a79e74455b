// Scores of a tile of positions, for four query heads: two partial sums of each position, then the weights.

// Number of positions of a tile.
const TILE = WG / 4u;

// Two positions, one query head per component.
struct Two {
    a: vec4<f32>,
    b: vec4<f32>,
}

// Two query heads per element: the first partial sums, or the weights, of two times two heads of each position, then
// the second partial sums.
var<workgroup> scores: array<vec2<f32>, 4u * TILE>;

// Score of a position: the sum of its partial sums.
fn score_of(position: u32) -> vec4<f32> {
    let at = 2u * position;
    let low = scores[at] + scores[2u * TILE + at];
    return vec4(low, scores[at + 1u] + scores[2u * TILE + at + 1u]);
}

// Weight of a position.
fn weight_of(position: u32) -> vec4<f32> {
    return vec4(scores[2u * position], scores[2u * position + 1u]);
}

fn put_weight(position: u32, weight: vec4<f32>) {
    scores[2u * position] = weight.xy;
    scores[2u * position + 1u] = weight.zw;
}
