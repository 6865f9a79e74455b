// Tiles of two parts.

const PARTS = 2u;
const PARTS_OF_ROWS = 1u;
