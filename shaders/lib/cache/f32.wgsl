// A pair of neighbours in the KV cache: two f32.

alias Pair = vec2<u32>;

fn pack_pair(v: vec2<f32>) -> Pair {
    return bitcast<vec2<u32>>(v);
}

fn unpack_pair(pair: Pair) -> vec2<f32> {
    return bitcast<vec2<f32>>(pair);
}
