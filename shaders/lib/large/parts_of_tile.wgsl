// Tiles of eight parts.

const PARTS = 8u;
const PARTS_OF_ROWS = 2u;
