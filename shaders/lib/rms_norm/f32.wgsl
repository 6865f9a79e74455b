// RMS norm in f32.

#import rms

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn factor(at: u32, i: u32) -> f32 {
    return w[i];
}
