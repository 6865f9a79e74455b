// Tiles of workgroup memory: rows of eight vectors, so turned that neither neighbouring rows nor
// neighbouring vectors of a row meet in a bank.

fn tile_at(row: u32, part: u32) -> u32 {
    return 8u * row + (part ^ (row & 7u));
}
