//! Kernel variants that an adapter supports.
#![expect(
    unsafe_code,
    reason = "wgpu enables experimental features only through an unsafe function"
)]

use super::options::DeviceOptions;
use tabla_core::device::{GpuFeatures, KernelVariant};

/// Features required by kernels with cooperative matrices.
pub(super) const MATRIX: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);
/// Maximum workgroup memory of kernels with cooperative matrices, in bytes.
const MATRIX_WORKGROUP_BYTES: u32 = 32 << 10;

/// Returns the features required by a variant.
pub(super) fn features(variant: KernelVariant) -> wgpu::Features {
    match variant {
        KernelVariant::Tile => wgpu::Features::empty(),
        KernelVariant::Subgroup
        | KernelVariant::Few
        | KernelVariant::Int8
        | KernelVariant::FewInt8 => wgpu::Features::SUBGROUP,
        KernelVariant::Matrix8
        | KernelVariant::Matrix16
        | KernelVariant::LargeMatrix8
        | KernelVariant::LargeMatrix16 => MATRIX,
    }
}

/// Returns true if a variant uses experimental features of wgpu and needs a self-test.
pub(super) fn is_experimental(variant: KernelVariant) -> bool {
    features(variant).contains(MATRIX)
}

/// Returns the variants that the options allow and the adapter supports.
pub(super) fn available(adapter: &wgpu::Adapter, options: &DeviceOptions) -> Vec<KernelVariant> {
    let allowed = |variant: &KernelVariant| {
        let variants = options.variants.as_ref();
        variants.is_none_or(|variants| variants.contains(variant))
    };
    let has = match options.features {
        GpuFeatures::All => adapter.features(),
        GpuFeatures::Baseline => wgpu::Features::empty(),
    };
    let supported = |variant: &KernelVariant| {
        has.contains(features(*variant))
            && match *variant {
                KernelVariant::Tile => true,
                // Sums over eight lanes are within a subgroup.
                KernelVariant::Subgroup
                | KernelVariant::Few
                | KernelVariant::Int8
                | KernelVariant::FewInt8 => adapter.get_info().subgroup_min_size >= 8,
                // The use of cooperative matrices in custom shaders is unchecked.
                variant if is_experimental(variant) && options.shader_path.is_some() => false,
                KernelVariant::Matrix8 | KernelVariant::LargeMatrix8 => {
                    supports_matrices(adapter, 8, 8)
                }
                KernelVariant::Matrix16 | KernelVariant::LargeMatrix16 => {
                    supports_matrices(adapter, 16, 32)
                }
            }
    };
    let all = KernelVariant::ALL.iter().copied();
    all.filter(|v| allowed(v) && supported(v)).collect()
}

/// Returns true if the adapter supports square f16 cooperative matrices of this size with f32
/// accumulation. Subgroups need at least `lanes` invocations: with smaller ones, a workgroup has
/// more subgroups than blocks. Vulkan only: naga's output for Metal is untested.
fn supports_matrices(adapter: &wgpu::Adapter, side: u32, lanes: u32) -> bool {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let sizes = adapter.cooperative_matrix_properties();
    info.backend == wgpu::Backend::Vulkan
        && info.subgroup_min_size >= lanes
        && limits.max_compute_workgroup_storage_size >= MATRIX_WORKGROUP_BYTES
        && sizes.iter().any(|p| {
            [p.m_size, p.n_size, p.k_size] == [side; 3]
                && p.ab_type == wgpu::CooperativeScalarType::F16
                && p.cr_type == wgpu::CooperativeScalarType::F32
        })
}

/// Returns the token for experimental features, enabled if a variant needs them.
pub(super) fn experimental(variants: &[KernelVariant]) -> wgpu::ExperimentalFeatures {
    if variants.iter().any(|v| is_experimental(*v)) {
        // SAFETY: only cooperative matrices are requested. The kernels load and store them within
        // their own workgroup memory, or store tiles that are within the results as a whole, in
        // control flow that is uniform in a subgroup: branches depend on parameters and on the
        // index of the subgroup.
        unsafe { wgpu::ExperimentalFeatures::enabled() }
    } else {
        wgpu::ExperimentalFeatures::disabled()
    }
}
