// Eight consecutive columns of a row in f16: 16 bytes.

enable f16;

alias Octet = array<vec4<f16>, 2>;

fn octet(low: vec4<f32>, high: vec4<f32>) -> Octet {
    return Octet(vec4<f16>(low), vec4<f16>(high));
}
