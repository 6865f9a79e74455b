//! Which forms of kernels an adapter can run.
#![expect(
    unsafe_code,
    reason = "wgpu gives what it calls experimental only to who says so in an unsafe function"
)]

use super::options::Options;
use tabla_core::device::{GpuFeatures, KernelVariant};

/// What kernels with cooperative matrices need.
pub(super) const MATRIX: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);
/// Bytes of workgroup memory that they take at most.
const MATRIX_WORKGROUP_BYTES: u32 = 28 << 10;

/// What a form needs of wgpu.
pub(super) fn features(form: KernelVariant) -> wgpu::Features {
    match form {
        KernelVariant::Tile => wgpu::Features::empty(),
        KernelVariant::Subgroup | KernelVariant::Int8 => wgpu::Features::SUBGROUP,
        KernelVariant::Matrix8 | KernelVariant::Matrix16 => MATRIX,
    }
}

/// Whether a device has to show that it runs a form: what wgpu calls experimental.
pub(super) fn on_trial(form: KernelVariant) -> bool {
    features(form).contains(MATRIX)
}

/// The forms that are wanted of those that the adapter can run.
pub(super) fn of(adapter: &wgpu::Adapter, options: &Options) -> Vec<KernelVariant> {
    let wanted = |form: &KernelVariant| {
        let forms = options.forms.as_ref();
        forms.is_none_or(|forms| forms.contains(form))
    };
    let has = match options.features {
        GpuFeatures::All => adapter.features(),
        GpuFeatures::Baseline => wgpu::Features::empty(),
    };
    let able = |form: &KernelVariant| {
        has.contains(features(*form))
            && match form {
                KernelVariant::Subgroup | KernelVariant::Tile | KernelVariant::Int8 => true,
                // What others' shaders do with cooperative matrices nobody has checked.
                KernelVariant::Matrix8 | KernelVariant::Matrix16
                    if options.shader_folder.is_some() =>
                {
                    false
                }
                KernelVariant::Matrix8 => multiplies(adapter, 8, 8),
                KernelVariant::Matrix16 => multiplies(adapter, 16, 32),
            }
    };
    let all = KernelVariant::ALL.iter().copied();
    all.filter(|form| wanted(form) && able(form)).collect()
}

/// Whether matrices of this side are multiplied in f16 with sums in f32, by subgroups of so many lanes
/// at least: of smaller ones a workgroup has more than blocks. On Vulkan alone: how naga writes them for Metal is
/// not tested here.
fn multiplies(adapter: &wgpu::Adapter, side: u32, lanes: u32) -> bool {
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

/// What wgpu wants to be told for these forms.
pub(super) fn experimental(forms: &[KernelVariant]) -> wgpu::ExperimentalFeatures {
    if forms.iter().any(|form| on_trial(*form)) {
        // SAFETY: only cooperative matrices are asked for; the kernels that have them load and store
        // them inside of their own workgroup memory, in control flow that is the same for a whole
        // workgroup, which naga checks when they are built.
        unsafe { wgpu::ExperimentalFeatures::enabled() }
    } else {
        wgpu::ExperimentalFeatures::disabled()
    }
}
