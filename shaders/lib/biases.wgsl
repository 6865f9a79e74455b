// What is added to the logit of a token.

struct Bias {
    token: u32,
    bias: f32,
}
