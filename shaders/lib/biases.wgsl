// Logit bias of a token.

struct Bias {
    token: u32,
    bias: f32,
}
