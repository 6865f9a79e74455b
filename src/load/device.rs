//! The device of a model: chosen by the user, or the best there is.

use super::Options;
use crate::device::{Devices, Profile};
use crate::error::{Result, bail};
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
    Gpu(gpu::Device),
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
                // An adapter that is itself software is taken only by who asks for a GPU.
                let allow_software = choice == DeviceChoice::Gpu;
                let wanted = gpu::Options {
                    adapter: None,
                    allow_software,
                    shader_folder: options.shader_folder.clone(),
                };
                match gpu::open(&wanted) {
                    Ok(Some(device)) => Ok(Self::Gpu(device)),
                    Ok(None) if allow_software => bail!(Device, "there is no GPU adapter"),
                    Err(error) if allow_software => Err(error),
                    other => {
                        tracing::info!(error = ?other.err(), "no GPU: the CPU replays");
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

    /// Stage 2: checks the shaders. A CPU has none.
    pub(super) fn check_shaders(self) -> Result<Self> {
        #[cfg(feature = "gpu")]
        if let Self::Gpu(device) = &self {
            gpu::shaders(device)?;
        }
        Ok(self)
    }

    /// Stage 7.
    pub(super) fn profile(&self) -> Result<Profile> {
        match self {
            Self::Cpu(options) => cpu::profile(options),
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => Ok(device.profile().clone()),
        }
    }

    /// Stage 16.
    pub(super) fn link(self, program: Program) -> Result<Box<dyn Executor>> {
        match self {
            Self::Cpu(options) => cpu::link(program, &options),
            #[cfg(feature = "gpu")]
            Self::Gpu(device) => gpu::link(device, program),
        }
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
