// Tiles in workgroup memory: rows of eight vectors, swizzled to avoid bank conflicts between
// adjacent rows and between adjacent vectors of a row.

fn tile_at(row: u32, part: u32) -> u32 {
    return 8u * row + (part ^ (row & 7u));
}
