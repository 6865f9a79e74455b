// Scores of a tile of positions for four query heads, then the weights.
//
// The kernel defines TILE, the number of positions of a tile.

// Two positions, one query head per component.
struct Two {
    a: vec4<f32>,
    b: vec4<f32>,
}

// Four positions each, four query heads of each. Arrays and not vectors, because several lanes write those of a position: a
// write of a component may access the whole vector.
var<workgroup> scores: array<array<array<f32, 4>, 4>, TILE / 4u>;
