// Stores a head of keys in a row of an f16 KV cache.

@group(0) @binding(4) var<storage, read_write> k_cache: array<u32>;

fn store(row: u32, head: u32, lane: u32) {
    let pairs = params.head_dim / 2u;
    let to = (row * params.kv_heads + head) * pairs;
    for (var p = lane; p < pairs; p += WG) {
        k_cache[to + p] = pack2x16float(stored[p]);
    }
}
