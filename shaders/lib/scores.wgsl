// Scores of a tile of positions for four query heads, then the weights.
//
// The kernel defines TILE, the number of positions of a tile.

// Two positions, one query head per component.
struct Two {
    a: vec4<f32>,
    b: vec4<f32>,
}

// Four positions each, one query head per component.
var<workgroup> scores: array<array<vec4<f32>, 4>, TILE / 4u>;
