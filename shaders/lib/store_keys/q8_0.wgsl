// Stores a head of keys in a row of a q8_0 KV cache.

#import store_codes

@group(0) @binding(4) var<storage, read_write> k_cache: array<u32>;

fn store(row: u32, head: u32, lane: u32) {
    let words = params.head_dim / 4u;
    let start = row_start(row);
    for (var w = lane; w < words; w += WG) {
        k_cache[start + head * words + w] = codes_from(2u * w);
    }
    for (var w = lane; w < words / 16u; w += WG) {
        let to = scale_word(start, head * words) + w;
        k_cache[to] = scales_from(32u * w);
    }
}
