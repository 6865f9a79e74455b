//! Selects the device of a model, and computes its free memory.

use super::memory::{self, Cache};
use super::options::{DeviceChoice, LoadOptions, WeightMemory};
use crate::arch::Config;
use crate::device::{Devices, Profile};
#[cfg(feature = "gpu")]
use crate::device::{HostExperts, KernelVariant, Precision};
#[cfg(feature = "gpu")]
use crate::error::Context;
use crate::error::{Result, bail};
use crate::exec::{Executor, Program, cpu};
#[cfg(feature = "gpu")]
use crate::exec::{SplitExecutor, SplitProgram, gpu};
use crate::op::table::BufferId;
#[cfg(feature = "gpu")]
use crate::op::table::{self, SlotInfo};

/// The selected device, before tables are linked to it.
#[derive(Clone, Debug)]
pub enum SelectedDevice {
    /// Options, and the reason for falling back from a GPU, if any.
    Cpu(CpuOptions, Option<String>),
    /// The GPU, the options of the CPU that computes experts, and the number of layers.
    #[cfg(feature = "gpu")]
    Gpu(gpu::Device, CpuOptions, u32),
}

/// Options of linking to the CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    link: cpu::LinkOptions,
    weights: WeightMemory,
}

/// Memory of linked tables in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceMemory {
    /// Weights.
    pub weights: u64,
    /// Weights and all other buffers.
    pub total: u64,
}

impl CpuOptions {
    fn new(options: &LoadOptions) -> Self {
        Self {
            link: cpu::LinkOptions::default()
                .threads(options.threads)
                .level(options.level)
                .precision(options.precision),
            weights: options.weights,
        }
    }

    /// Returns options of linking with which as many packed weights as possible fit.
    fn fitting(self, program: &Program) -> Result<cpu::LinkOptions> {
        let all = cpu::memory_usage(program, &self.link.packed_bytes(u64::MAX))?;
        let bytes = memory::packed_bytes(self.weights, all)?;
        Ok(self.link.packed_bytes(bytes))
    }

    /// Links a program, with as many packed weights as fit.
    fn link(self, program: Program) -> Result<Box<dyn Executor>> {
        cpu::link_fitting(program, &self.link, &|all| {
            memory::packed_bytes(self.weights, all)
        })
    }

    /// Returns the memory of a program that is linked.
    fn memory(self, program: &Program) -> Result<DeviceMemory> {
        let usage = cpu::memory_usage(program, &self.fitting(program)?)?;
        let weights = usage.packed + usage.mapped;
        Ok(DeviceMemory {
            weights,
            total: weights + usage.buffers,
        })
    }
}

/// Returns the kernel variants allowed at this precision; `None` allows all.
#[cfg(feature = "gpu")]
fn allowed_variants(precision: Precision) -> Option<Vec<KernelVariant>> {
    let all = KernelVariant::ALL.iter().copied();
    (precision == Precision::Exact).then(|| all.filter(|variant| variant.exact()).collect())
}

/// Returns a number of seconds as a duration; `None` for 0.
#[cfg(feature = "gpu")]
fn seconds(count: u32) -> Option<std::time::Duration> {
    (count > 0).then(|| std::time::Duration::from_secs(count.into()))
}

impl SelectedDevice {
    /// Selects the device named by the options, or the best available one.
    pub fn choose(options: &LoadOptions) -> Result<Self> {
        let cpu = |fallback| Ok(Self::Cpu(CpuOptions::new(options), fallback));
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
                    .timeout(seconds(options.gpu_timeout))
                    .pipeline_cache_path(options.pipeline_cache_path.clone());
                match gpu::open(&gpu_options) {
                    Ok(Some(device)) => {
                        let layers = options.cpu_experts.layers();
                        Ok(Self::Gpu(device, CpuOptions::new(options), layers))
                    }
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
    pub fn check_shaders(self) -> Result<Self> {
        #[cfg(feature = "gpu")]
        if let Self::Gpu(device, ..) = &self {
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
    pub fn fallback(&self) -> Option<String> {
        match self {
            Self::Cpu(_, fallback) => fallback.clone(),
            #[cfg(feature = "gpu")]
            Self::Gpu(..) => None,
        }
    }

    /// Returns the GPU; `None` for the CPU.
    #[cfg(feature = "gpu")]
    pub(super) fn gpu(&self) -> Option<gpu::Device> {
        match self {
            Self::Cpu(..) => None,
            Self::Gpu(device, ..) => Some(device.clone()),
        }
    }

    /// Returns the device profile.
    pub fn profile(&self) -> Result<Profile> {
        match self {
            Self::Cpu(options, _) => cpu::profile(&options.link),
            #[cfg(feature = "gpu")]
            Self::Gpu(device, _, 0) => Ok(device.profile().clone()),
            #[cfg(feature = "gpu")]
            Self::Gpu(device, options, layers) => Ok(Profile {
                host_experts: Some(HostExperts {
                    layers: *layers,
                    cpu: cpu::profile(&options.link)?.to_string(),
                }),
                ..device.profile().clone()
            }),
        }
    }

    /// Returns the memory of a linked program: on the device, and on the host of a GPU that computes
    /// experts. A GPU has weights in layouts of its own.
    pub fn memory(&self, program: &Program) -> Result<[DeviceMemory; 2]> {
        match self {
            Self::Cpu(options, _) => Ok([options.memory(program)?, DeviceMemory::default()]),
            #[cfg(feature = "gpu")]
            Self::Gpu(device, options, _) => {
                let mut split = SplitProgram::new(program);
                let host = split.host.take();
                let host = host.map(|host| options.memory(&host)).transpose()?;
                let tables = &split.device.tables;
                let buffers = table::buffers(tables).into_values();
                let weights = buffers.filter(|slot| matches!(slot.buffer, BufferId::Weight(..)));
                let memory = DeviceMemory {
                    weights: weights.map(SlotInfo::bytes).sum(),
                    total: gpu::planned_bytes(tables, device.profile()),
                };
                Ok([memory, host.unwrap_or_default()])
            }
        }
    }

    /// Links tables that were planned with this profile. Each sequence has its own pages.
    pub fn link(
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
            Self::Cpu(options, _) => options.link(program)?,
            #[cfg(feature = "gpu")]
            Self::Gpu(device, options, _) => {
                let device = device.with_profile(profile);
                let mut program = SplitProgram::new(&program);
                match program.host.take() {
                    None => gpu::link(device, program.device)?,
                    Some(host) => {
                        let host = options.link(host).context("experts on the CPU")?;
                        let linked = gpu::link(device, program.device.clone())?;
                        Box::new(SplitExecutor::new(program, linked, host))
                    }
                }
            }
        };
        if paged {
            let table = cache.pages.in_order(cache.rows());
            executor.write(BufferId::Pages, 0, bytemuck::cast_slice(&table))?;
        }
        Ok(executor)
    }
}

/// Limits the layers whose experts run on the CPU to those of the model; none if it has no experts in them.
pub(crate) fn limit_host_experts(profile: &mut Profile, config: &Config) {
    if let Some(experts) = &mut profile.host_experts {
        experts.layers = experts.layers.min(config.layers);
        let mut layers = config.layer_configs.iter().take(experts.layers as usize);
        if !layers.any(|layer| layer.experts > 0) {
            profile.host_experts = None;
        }
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
