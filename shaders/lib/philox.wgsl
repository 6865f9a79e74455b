// Philox4x32-10: random words from a counter and a key (Salmon et al., SC 2011).

// Upper and lower word of a product, computed from 16-bit halves.
fn wide_mul(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let mid = ah * bl + (low >> 16u);
    let mid2 = al * bh + (mid & 0xffffu);
    return vec2(ah * bh + (mid >> 16u) + (mid2 >> 16u), a * b);
}

fn philox(start: vec4<u32>, start_key: vec2<u32>) -> vec4<u32> {
    var c = start;
    var key = start_key;
    for (var round = 0u; round < 10u; round++) {
        let a = wide_mul(0xd2511f53u, c.x);
        let b = wide_mul(0xcd9e8d57u, c.z);
        c = vec4(b.x ^ c.y ^ key.x, b.y, a.x ^ c.w ^ key.y, a.y);
        key += vec2(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}
