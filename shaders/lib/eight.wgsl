// Eight consecutive elements.

struct Eight {
    lo: vec4<f32>,
    hi: vec4<f32>,
}
