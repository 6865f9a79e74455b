// A pair of neighbours in the KV cache: two f16 in a word.

alias Pair = u32;

fn pack_pair(v: vec2<f32>) -> Pair {
    return pack2x16float(v);
}

fn unpack_pair(pair: Pair) -> vec2<f32> {
    return unpack2x16float(pair);
}
