//! The device of a model: chosen by the user, or the best there is.

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

/// A device before tables are linked to it.
#[derive(Clone)]
pub(super) enum Device {
    /// With the reason why no GPU was taken, where one would have been.
    Cpu(cpu::Options, WeightMemory, Option<String>),
    #[cfg(feature = "gpu")]
    Gpu(gpu::Device),
}

/// The forms of kernels that compute as exactly as is asked for; `None`: all.
#[cfg(feature = "gpu")]
fn forms(precision: Precision) -> Option<Vec<KernelVariant>> {
    let all = KernelVariant::ALL.iter().copied();
    (precision == Precision::Exact).then(|| all.filter(|form| form.exact()).collect())
}

impl Device {
    /// Chooses the device that the options name, or the best there is.
    pub(super) fn choose(options: &LoadOptions) -> Result<Self> {
        let weights = options.weights;
        let cpu = |fallback| {
            let options = cpu::Options {
                threads: options.threads,
                level: options.level,
                precision: options.precision,
                packed: false,
            };
            Ok(Self::Cpu(options, weights, fallback))
        };
        match options.device {
            DeviceChoice::Cpu => match &options.adapter {
                Some(adapter) => bail!(
                    Argument,
                    "the adapter {adapter} was named, but the device is to be the CPU"
                ),
                None => cpu(None),
            },
            #[cfg(feature = "gpu")]
            choice => {
                let asked = choice == DeviceChoice::Gpu || options.adapter.is_some();
                let wanted = gpu::Options {
                    adapter: options.adapter.clone(),
                    // An adapter that is itself software is taken only by who asks for a GPU.
                    allow_software: asked,
                    shader_folder: options.shader_folder.clone(),
                    features: options.gpu_features,
                    variants: forms(options.precision),
                    replay: options.replay,
                    kernel_folder: options.kernel_folder.clone(),
                };
                match gpu::open(&wanted) {
                    Ok(Some(device)) => Ok(Self::Gpu(device)),
                    Ok(None) if asked => bail!(Device, "there is no GPU adapter"),
                    Ok(None) => cpu(Some("no GPU was found".into())),
                    Err(error) if asked => Err(error),
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

    /// Checks the shaders. A CPU has none.
    pub(super) fn check_shaders(self) -> Result<Self> {
        #[cfg(feature = "gpu")]
        if let Self::Gpu(device) = &self {
            gpu::shaders(device)?;
        }
        Ok(self)
    }

    /// Checks the shaders and returns the facts of the device.
    pub(super) fn checked(self) -> Result<(Self, Profile)> {
        let device = self.check_shaders()?;
        let profile = device.profile()?;
        Ok((device, profile))
    }

    /// Why no GPU was taken, where one would have been.
    pub(super) fn fallback(&self) -> Option<String> {
        match self {
            Self::Cpu(_, _, fallback) => fallback.clone(),
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => None,
        }
    }

    /// Returns the facts of the device.
    pub(super) fn profile(&self) -> Result<Profile> {
        match self {
            Self::Cpu(options, ..) => cpu::profile(options),
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => Ok(device.profile().clone()),
        }
    }

    /// Bytes of the buffers that tables will have; `None` on a CPU, which has most of them in the
    /// file's pages.
    pub(super) fn planned_bytes(&self, tables: &[Table]) -> Option<u64> {
        #[cfg(not(feature = "gpu"))]
        let _ = tables;
        match self {
            Self::Cpu(..) => None,
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => Some(gpu::planned_bytes(tables, device.profile())),
        }
    }

    /// Links tables that were planned with these facts. Each sequence has pages of its own.
    pub(super) fn link(
        self,
        program: Program,
        profile: Profile,
        cache: &Cache,
    ) -> Result<Box<dyn Executor>> {
        #[cfg(not(feature = "gpu"))]
        let _ = profile;
        let mut slots = program.tables.iter().flat_map(|table| &table.slots);
        let paged = slots.any(|slot| slot.place == BufferId::Pages);
        let mut executor = match self {
            Self::Cpu(mut options, weights, _) => {
                let bytes = cpu::packed_bytes(&program, &options)?;
                options.packed = memory::pack(weights, bytes)?;
                cpu::link(program, &options)?
            }
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => gpu::link(device.with_profile(profile), program)?,
        };
        if paged {
            let table = cache.pages.in_order(cache.sequences);
            executor.write(BufferId::Pages, 0, bytemuck::cast_slice(&table))?;
        }
        Ok(executor)
    }
}

/// What a table could be linked to on this machine.
///
/// # Errors
///
/// `Argument` where `TABLA_CPU` names no level of this CPU.
pub fn devices() -> Result<Devices> {
    Ok(Devices {
        cpu: cpu::profile(&cpu::Options::default())?,
        #[cfg(feature = "gpu")]
        gpus: gpu::adapters(),
        #[cfg(not(feature = "gpu"))]
        gpus: Vec::new(),
    })
}
