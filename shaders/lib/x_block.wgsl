// Blocks of x in f32. The storage type of W defines X and `x_of`.

#import x4

fn x_block(row: u32, i: u32) -> X {
    return x_of(Numbers(
        x4(row, 8u * i),
        x4(row, 8u * i + 1u),
        x4(row, 8u * i + 2u),
        x4(row, 8u * i + 3u),
        x4(row, 8u * i + 4u),
        x4(row, 8u * i + 5u),
        x4(row, 8u * i + 6u),
        x4(row, 8u * i + 7u),
    ));
}
