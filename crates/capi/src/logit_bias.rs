//! Logit biases of the C API.

/// A value that is added to the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLogitBias {
    /// Token id.
    pub token: u32,
    /// Value to add; minus infinity bans the token.
    pub bias: f32,
}
