// Softcap of attention scores.

#import tanh

// Softcapped score; a softcap of 0 disables it.
fn softcapped(score: f32, softcap: f32) -> f32 {
    if (softcap == 0.0) {
        return score;
    }
    return softcap * tanh_of(score / softcap);
}
