// X_BLOCKS blocks of x in workgroup memory.

#import tile

var<workgroup> x_tile: array<vec4<f32>, 8u * X_BLOCKS>;

fn x_numbers(at: u32) -> Numbers {
    return Numbers(
        x_tile[tile_at(at, 0u)],
        x_tile[tile_at(at, 1u)],
        x_tile[tile_at(at, 2u)],
        x_tile[tile_at(at, 3u)],
        x_tile[tile_at(at, 4u)],
        x_tile[tile_at(at, 5u)],
        x_tile[tile_at(at, 6u)],
        x_tile[tile_at(at, 7u)],
    );
}
