// Eight numbers in a row.

struct Eight {
    lo: vec4<f32>,
    hi: vec4<f32>,
}
