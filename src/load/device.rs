//! Device selection.

use super::memory::{self, Cache};
use super::options::{DeviceChoice, LoadOptions, WeightMemory};
use crate::device::{Devices, Profile};
#[cfg(feature = "gpu")]
use crate::device::{KernelVariant, Precision};
use crate::error::{Result, bail};
#[cfg(feature = "gpu")]
use crate::exec::gpu;
use crate::exec::{Executor, Program, cpu};
use crate::op::table::{BufferId, Table};

/// The selected device, before tables are linked to it.
#[derive(Clone)]
pub(super) enum SelectedDevice {
    /// Options, weight layout, and the reason for falling back from a GPU, if any.
    Cpu(cpu::LinkOptions, WeightMemory, Option<String>),
    #[cfg(feature = "gpu")]
    Gpu(gpu::Device),
}

/// Returns the kernel variants allowed at this precision; `None` allows all.
#[cfg(feature = "gpu")]
fn allowed_variants(precision: Precision) -> Option<Vec<KernelVariant>> {
    let all = KernelVariant::ALL.iter().copied();
    (precision == Precision::Exact).then(|| all.filter(|variant| variant.exact()).collect())
}

impl SelectedDevice {
    /// Selects the device named by the options, or the best available one.
    pub(super) fn choose(options: &LoadOptions) -> Result<Self> {
        let weights = options.weights;
        let cpu = |fallback| {
            let options = cpu::LinkOptions::default()
                .threads(options.threads)
                .level(options.level)
                .precision(options.precision);
            Ok(Self::Cpu(options, weights, fallback))
        };
        match options.device {
            DeviceChoice::Cpu => match &options.adapter {
                Some(adapter) => bail!(
                    Argument,
                    "adapter {adapter} is set, but the device is the CPU"
                ),
                None => cpu(None),
            },
            #[cfg(feature = "gpu")]
            choice => {
                let required = choice == DeviceChoice::Gpu || options.adapter.is_some();
                let gpu_options = gpu::DeviceOptions::default()
                    .adapter(options.adapter.clone())
                    // Automatic selection does not use software adapters.
                    .allow_software(required)
                    .shader_path(options.shader_path.clone())
                    .features(options.gpu_features)
                    .variants(allowed_variants(options.precision))
                    .replay(options.replay)
                    .pipeline_cache_path(options.pipeline_cache_path.clone());
                match gpu::open(&gpu_options) {
                    Ok(Some(device)) => Ok(Self::Gpu(device)),
                    Ok(None) if required => bail!(Device, "no GPU adapter found"),
                    Ok(None) => cpu(Some("no GPU was found".into())),
                    Err(error) if required => Err(error),
                    Err(error) => cpu(Some(error.to_string())),
                }
            }
            #[cfg(not(feature = "gpu"))]
            DeviceChoice::Auto if options.adapter.is_none() => {
                cpu(Some("this build has no GPU support".into()))
            }
            #[cfg(not(feature = "gpu"))]
            DeviceChoice::Auto | DeviceChoice::Gpu => {
                bail!(Unsupported, "this build has no GPU support")
            }
        }
    }

    /// Validates the shaders of a GPU.
    pub(super) fn check_shaders(self) -> Result<Self> {
        #[cfg(feature = "gpu")]
        if let Self::Gpu(device) = &self {
            gpu::shaders(device)?;
        }
        Ok(self)
    }

    /// Validates the shaders and returns the device profile.
    pub(super) fn checked(self) -> Result<(Self, Profile)> {
        let device = self.check_shaders()?;
        let profile = device.profile()?;
        Ok((device, profile))
    }

    /// Returns the reason for falling back from a GPU to the CPU, if any.
    pub(super) fn fallback(&self) -> Option<String> {
        match self {
            Self::Cpu(_, _, fallback) => fallback.clone(),
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => None,
        }
    }

    /// Returns the GPU; `None` for the CPU.
    #[cfg(feature = "gpu")]
    pub(super) fn gpu(&self) -> Option<gpu::Device> {
        match self {
            Self::Cpu(..) => None,
            Self::Gpu(device) => Some(device.clone()),
        }
    }

    /// Returns the device profile.
    pub(super) fn profile(&self) -> Result<Profile> {
        match self {
            Self::Cpu(options, ..) => cpu::profile(options),
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => Ok(device.profile().clone()),
        }
    }

    /// Returns the bytes of all buffers of the tables. `None` on a CPU, where most weights stay in
    /// mapped file pages.
    pub(super) fn planned_bytes(&self, tables: &[Table]) -> Option<u64> {
        #[cfg(not(feature = "gpu"))]
        let _ = tables;
        match self {
            Self::Cpu(..) => None,
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => Some(gpu::planned_bytes(tables, device.profile())),
        }
    }

    /// Links tables that were planned with this profile. Each sequence has its own pages.
    pub(super) fn link(
        self,
        program: Program,
        profile: Profile,
        cache: &Cache,
    ) -> Result<Box<dyn Executor>> {
        #[cfg(not(feature = "gpu"))]
        let _ = profile;
        let mut slots = program.tables.iter().flat_map(|table| &table.slots);
        let paged = slots.any(|slot| slot.buffer == BufferId::Pages);
        let mut executor = match self {
            Self::Cpu(mut options, weights, _) => {
                options.packing = memory::packing(weights, |packing| {
                    cpu::packed_bytes(&program, &options.packing(packing))
                })?;
                cpu::link(program, &options)?
            }
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => gpu::link(device.with_profile(profile), program)?,
        };
        if paged {
            let table = cache.pages.in_order(cache.rows());
            executor.write(BufferId::Pages, 0, bytemuck::cast_slice(&table))?;
        }
        Ok(executor)
    }
}

/// Lists the devices of this machine.
///
/// # Errors
///
/// `Argument` if `TABLA_CPU` names an instruction set that this CPU does not support.
pub fn devices() -> Result<Devices> {
    Ok(Devices {
        cpu: cpu::profile(&cpu::LinkOptions::default())?,
        #[cfg(feature = "gpu")]
        gpus: gpu::adapters(),
        #[cfg(not(feature = "gpu"))]
        gpus: Vec::new(),
    })
}
