//! What the bits of a KV cache depend on beside the model's files, in words: two models that say the
//! same compute the same cache for the same tokens.

use super::build::Build;
use super::options::LoadOptions;
use crate::device::{DeviceKind, Precision};
use crate::exec::Tensors;
use crate::exec::shader_sources;
use crate::model::Facts;
use blake3::Hasher;

/// A line for each thing.
pub(super) fn of(build: &Build, facts: &Facts, options: &LoadOptions) -> String {
    let profile = &build.profile;
    let precision = match options.precision {
        Precision::Fast => "fast",
        Precision::Exact => "exact",
    };
    let mut lines = vec![
        format!("tabla {}", env!("CARGO_PKG_VERSION")),
        format!("device {} ({})", profile.name, profile.backend),
        format!("precision {precision}"),
        format!("cache {}", build.cache.dtype),
        format!("i2_s {:?}", options.i2s_layout),
    ];
    // Some are scaled by the context.
    let ropes = (0..).take(build.config.ropes.len());
    let ropes = ropes.map(|at| build.catalog.constant(at));
    lines.push(format!("frequencies {}", short(ropes)));
    if profile.kind == DeviceKind::Gpu {
        // A CPU has the same bits in chunks of any size and steps of any width.
        let steps = if facts.speculates { "wide" } else { "lone" };
        let kernels = format!("{:?} {:?}", profile.forms, profile.choices);
        let sources = shader_sources()
            .iter()
            .flat_map(|(name, text)| [*name, *text]);
        let sources = sources.chain([&*kernels]).map(str::as_bytes);
        lines.extend([
            format!("driver {}", profile.driver),
            format!("kernels {}", short(sources)),
            format!("replay {:?}", options.replay),
            format!("fusion {}", profile.fusion.name()),
            format!("attention {}", profile.attention_part),
            format!("chunk {}", build.chunk),
            format!("steps {steps}"),
        ]);
        if let Some(folder) = &options.shader_folder {
            lines.push(format!("shaders {}", folder.display()));
        }
    }
    lines.join("\n")
}

/// The beginning of a digest of some stretches of bytes, in hexadecimal digits.
fn short<'a>(stretches: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hasher = Hasher::new();
    for bytes in stretches {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    let hex = hasher.finalize().to_hex();
    hex[..16].to_string()
}
