// Parts of the visible positions of a token: `part` of the Params positions, or as many as divide the
// visible positions into `parts` parts.

// Number of positions of a part, if `seen` are visible.
fn part_size(seen: u32) -> u32 {
    let least = (seen + params.parts - 1u) / params.parts;
    // Whole pages.
    return select(params.part, (least + 63u) / 64u * 64u, least > params.part);
}
