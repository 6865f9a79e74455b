//! What memory can deliver: every thread reads its part of a buffer that no cache holds, as kernels
//! read weights; or a kernel of a GPU reads its memory.

use crate::output::Failure;
use crate::output::terminal;
use memmap2::MmapMut;
use std::time::Instant;
use tabla::exec::cpu::{self, Level};
use tabla::exec::gpu;
use tabla::{DeviceKind, ErrorKind, LoadOptions, Profile};

/// Bytes of the buffer at least.
const BUFFER_BYTES_MIN: u64 = 512 << 20;
/// How many times the buffer is larger than the last-level cache.
const CACHES: u64 = 4;
/// Bytes of a line of a cache.
const LINE: usize = 64;

/// The memory of a device, and the rate of every round.
pub(crate) struct Probe {
    memory: Memory,
    /// Bytes per second.
    rates: Vec<f64>,
}

enum Memory {
    Cpu(Buffer),
    Gpu(Box<gpu::Probe>),
    /// That of a GPU which has no room beside the model.
    Full,
}

impl Probe {
    /// Of the device that a model was loaded to with these options.
    pub(crate) fn new(profile: &Profile, options: &LoadOptions) -> Result<Self, Failure> {
        let memory = match profile.kind {
            DeviceKind::Cpu => Memory::Cpu(Buffer::new(profile.threads, profile.cache_bytes)?),
            DeviceKind::Gpu => {
                let device = gpu::open(&gpu::Options {
                    adapter: options.adapter.clone(),
                    allow_software: true,
                    variants: Some(Vec::new()),
                    ..gpu::Options::default()
                })?;
                let device = device.ok_or_else(|| Failure::new("the GPU is gone"))?;
                match gpu::Probe::new(&device) {
                    Ok(probe) => Memory::Gpu(Box::new(probe)),
                    Err(error) if error.kind() == ErrorKind::Memory => {
                        terminal::note(&format!("the memory is not probed: {error}"));
                        Memory::Full
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let rates = Vec::new();
        Ok(Self { memory, rates })
    }

    /// Reads all of it once.
    pub(crate) fn round(&mut self) -> Result<(), Failure> {
        let rate = match &mut self.memory {
            Memory::Cpu(buffer) => buffer.read(),
            Memory::Gpu(probe) => probe.round()?,
            Memory::Full => return Ok(()),
        };
        if rate.is_finite() {
            self.rates.push(rate);
        }
        Ok(())
    }

    /// Bytes per second of every round.
    pub(crate) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Bytes per second of the best round, where there was one.
    pub(crate) fn best(&self) -> Option<f64> {
        self.rates.iter().copied().reduce(f64::max)
    }
}

/// A buffer in parts, one for each thread.
struct Buffer {
    level: Level,
    parts: Vec<MmapMut>,
}

impl Buffer {
    /// For this many threads and a last-level cache of this size.
    fn new(threads: u32, cache_bytes: u64) -> Result<Self, Failure> {
        let threads = u64::from(threads.max(1));
        let bytes = BUFFER_BYTES_MIN.max(cache_bytes.saturating_mul(CACHES));
        let part = usize::try_from(bytes / threads).unwrap_or(usize::MAX);
        let part = (part / LINE).max(1).saturating_mul(LINE);
        let fail = |cause| Failure::Program {
            message: format!("cannot get {bytes} bytes to measure the memory with"),
            cause: Some(cause),
        };
        let parts = (0..threads).map(|_| MmapMut::map_anon(part));
        let mut parts = parts.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        // Weights lie in huge pages too where the system has them; a refusal costs a few per cent.
        #[cfg(target_os = "linux")]
        for part in &parts {
            let _ = part.advise(memmap2::Advice::HugePage);
        }
        std::thread::scope(|scope| {
            for part in &mut parts {
                scope.spawn(|| part.fill(1));
            }
        });
        let level = Level::best()?;
        cpu::read(level, &[])?;
        Ok(Self { level, parts })
    }

    /// Reads the buffer once; yields bytes per second.
    fn read(&self) -> f64 {
        let (level, start) = (self.level, Instant::now());
        std::thread::scope(|scope| {
            for part in &self.parts {
                scope.spawn(|| std::hint::black_box(cpu::read(level, part).is_ok()));
            }
        });
        let seconds = start.elapsed().as_secs_f64();
        let bytes: usize = self.parts.iter().map(|part| part.len()).sum();
        bytes as f64 / seconds
    }
}
