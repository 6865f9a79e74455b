//! The device of a model: chosen by the user, or the best there is.

use super::Options;
use crate::device::Profile;
use crate::error::Result;
#[cfg(not(feature = "gpu"))]
use crate::error::bail;
#[cfg(feature = "gpu")]
use crate::exec::gpu;
use crate::exec::{Executor, Program, cpu};

/// Which device replays the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU where there is one, else the CPU. An adapter that is itself software is no GPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, be it software; an error where there is none.
    Gpu,
}

/// A device before tables are linked to it.
pub(super) enum Device {
    Cpu(cpu::Options),
    #[cfg(feature = "gpu")]
    Gpu(Box<gpu::Device>),
}

impl Device {
    /// Stage 1.
    pub(super) fn choose(options: &Options) -> Result<Self> {
        let cpu = || {
            Self::Cpu(cpu::Options {
                threads: options.threads,
                level: options.level,
                precision: options.precision,
            })
        };
        match options.device {
            DeviceChoice::Cpu => Ok(cpu()),
            #[cfg(feature = "gpu")]
            choice => {
                let software = choice == DeviceChoice::Gpu;
                let wanted = gpu::Options {
                    adapter: None,
                    allow_software: software,
                };
                match gpu::open(&wanted) {
                    Ok(device) => Ok(Self::Gpu(Box::new(device))),
                    Err(error) if software => Err(error),
                    Err(error) => {
                        tracing::info!(%error, "no GPU, the CPU replays");
                        Ok(cpu())
                    }
                }
            }
            #[cfg(not(feature = "gpu"))]
            DeviceChoice::Auto => Ok(cpu()),
            #[cfg(not(feature = "gpu"))]
            DeviceChoice::Gpu => bail!(Unsupported, "this build has no GPU support"),
        }
    }

    /// Stage 2: the shaders of a folder in front of the embedded ones. A CPU has none to replace.
    pub(super) fn with_shaders(self, options: &Options) -> Result<Self> {
        match self {
            Self::Cpu(cpu) => Ok(Self::Cpu(cpu)),
            #[cfg(feature = "gpu")]
            Self::Gpu(mut device) => {
                device.load_shaders(options.shader_folder.as_deref())?;
                Ok(Self::Gpu(device))
            }
        }
    }

    /// Stage 7.
    pub(super) fn profile(&self) -> Result<Profile> {
        match self {
            Self::Cpu(options) => cpu::profile(options),
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => Ok(device.profile()),
        }
    }

    /// Stage 16.
    pub(super) fn link(self, program: Program) -> Result<Box<dyn Executor>> {
        match self {
            Self::Cpu(options) => cpu::link(program, &options),
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => gpu::link(*device, program),
        }
    }
}

/// Every device that a table could be linked to, the CPU first.
pub fn devices() -> Vec<Profile> {
    let cpu = cpu::profile(&cpu::Options::default()).ok();
    #[cfg(feature = "gpu")]
    let gpus = gpu::adapters();
    #[cfg(not(feature = "gpu"))]
    let gpus = Vec::new();
    cpu.into_iter().chain(gpus).collect()
}
