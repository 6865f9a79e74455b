// Numbers out of a table of 16 signed bytes.

fn chosen(table: vec4<u32>, codes: vec4<u32>) -> vec4<f32> {
    let words = vec4(
        table[codes.x / 4u],
        table[codes.y / 4u],
        table[codes.z / 4u],
        table[codes.w / 4u],
    );
    return vec4<f32>(bitcast<vec4<i32>>(words << (24u - 8u * (codes % 4u))) >> vec4(24u));
}

// `scale * table[code]` of 8 codes, one in a byte.
fn from_table(scale: f32, table: vec4<u32>, codes: vec2<u32>) -> Octet {
    return Octet(
        scale * chosen(table, unpack4xU8(codes.x)),
        scale * chosen(table, unpack4xU8(codes.y)),
    );
}
