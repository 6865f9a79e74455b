// w as the blocks of the file, BLOCK numbers each, padded with zeros to WORDS words; rows one
// after the other.

#import bytes
#import words

@group(0) @binding(0) var<storage, read> w: array<u32>;

// The first word of the block that has octet `i` of a row.
fn block_of(row: u32, i: u32) -> u32 {
    return (row * (params.cols / BLOCK) + i / (BLOCK / 8u)) * WORDS;
}
