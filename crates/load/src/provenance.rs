//! Provenance of a KV cache: everything besides the model files that its bits depend on. Two models
//! with the same files and provenance compute the same KV cache for the same tokens.

use super::build::Build;
use super::options::LoadOptions;
use crate::device::{DeviceKind, Precision};
use crate::exec::Tensors;
use crate::exec::shader_sources;
use crate::model::Facts;
use blake3::Hasher;

/// Returns the provenance as text, one property per line.
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
    if !build.catalog.merged().is_empty() {
        lines.push(format!("lora {}", build.catalog.merged()));
    }
    if let Some(head) = facts.drafting_head {
        // Pages also have the rows of the head.
        lines.push(format!("drafting head {head}"));
    }
    // The context length scales some RoPE frequencies.
    let ropes = (0..).take(build.config.rope.rotations.len());
    let ropes = ropes.map(|at| build.catalog.constant(at));
    lines.push(format!("frequencies {}", short(ropes)));
    if profile.kind == DeviceKind::Gpu {
        // On a CPU, the bits do not depend on the chunk size or the number of rows.
        let speculates = if facts.speculates { "on" } else { "off" };
        let kernels = format!("{:?} {:?}", profile.variants, profile.tuned_kernels);
        let sources = shader_sources()
            .iter()
            .flat_map(|(name, text)| [*name, *text]);
        let sources = sources.chain([&*kernels]).map(str::as_bytes);
        lines.extend([
            format!("driver {}", profile.driver),
            format!("kernels {}", short(sources)),
            format!("replay {:?}", options.replay),
            format!("attention {}", profile.attention_part),
            format!("chunk {}", build.chunk),
            format!("speculates {speculates}"),
        ]);
        if let Some(experts) = &profile.host_experts {
            lines.push(format!("experts {} {}", experts.layers, experts.cpu));
        }
        if let Some(folder) = &options.shader_path {
            lines.push(format!("shaders {}", folder.display()));
        }
    }
    lines.join("\n")
}

/// Returns the first 16 hexadecimal digits of the digest of several byte slices.
fn short<'a>(slices: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hasher = Hasher::new();
    for bytes in slices {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    let hex = hasher.finalize().to_hex();
    hex[..16].to_string()
}
