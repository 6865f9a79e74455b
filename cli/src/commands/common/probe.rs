//! Measurement of memory bandwidth. On a CPU, each thread reads its part of a buffer that is larger
//! than the caches, as kernels read weights. On a GPU, a kernel reads a buffer.

use crate::output::Failure;
use crate::output::terminal;
use memmap2::MmapMut;
use std::time::Instant;
use tabla::ErrorKind;
use tabla::device::{DeviceKind, Profile};
use tabla::exec::cpu::{self, Level};
use tabla::exec::gpu;
use tabla::load::LoadOptions;

/// Minimum size of the buffer in bytes.
const BUFFER_BYTES_MIN: u64 = 512 << 20;
/// Minimum ratio of buffer size to last-level cache size.
const BUFFER_PER_CACHE: u64 = 4;
/// Size of a cache line in bytes.
const LINE: usize = 64;

/// A bandwidth measurement.
pub(crate) struct Probe {
    memory: Memory,
    /// Bytes per second of each round.
    rates: Vec<f64>,
}

enum Memory {
    Cpu(Buffer),
    Gpu(Box<gpu::Probe>),
    /// A GPU without enough free memory for the buffer.
    Unavailable,
}

impl Probe {
    /// Creates a probe of the device that a model was loaded to.
    pub(crate) fn new(profile: &Profile, options: &LoadOptions) -> Result<Self, Failure> {
        let memory = match profile.kind {
            DeviceKind::Cpu => Memory::Cpu(Buffer::new(profile.threads, profile.cache_bytes)?),
            DeviceKind::Gpu => {
                let device = gpu::open(
                    &gpu::DeviceOptions::default()
                        .adapter(options.adapter.clone())
                        .allow_software(true)
                        .variants(Vec::new()),
                )?;
                let device =
                    device.ok_or_else(|| Failure::new("the GPU is no longer available"))?;
                match gpu::Probe::new(&device) {
                    Ok(probe) => Memory::Gpu(Box::new(probe)),
                    Err(error) if error.kind() == ErrorKind::Memory => {
                        terminal::note(&format!("memory bandwidth is not measured: {error}"));
                        Memory::Unavailable
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let rates = Vec::new();
        Ok(Self { memory, rates })
    }

    /// Reads the buffer once and stores the rate.
    pub(crate) fn round(&mut self) -> Result<(), Failure> {
        let rate = match &mut self.memory {
            Memory::Cpu(buffer) => buffer.read()?,
            Memory::Gpu(probe) => probe.round()?,
            Memory::Unavailable => return Ok(()),
        };
        if rate.is_finite() {
            self.rates.push(rate);
        }
        Ok(())
    }

    /// Bytes per second of each round.
    pub(crate) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Bytes per second of the best round; `None` before the first one.
    pub(crate) fn best(&self) -> Option<f64> {
        self.rates.iter().copied().reduce(f64::max)
    }
}

/// A buffer with one part per thread.
struct Buffer {
    level: Level,
    parts: Vec<MmapMut>,
}

impl Buffer {
    /// Allocates and fills the buffer.
    fn new(threads: u32, cache_bytes: u64) -> Result<Self, Failure> {
        let threads = u64::from(threads.max(1));
        let bytes = BUFFER_BYTES_MIN.max(cache_bytes.saturating_mul(BUFFER_PER_CACHE));
        let part = usize::try_from(bytes / threads).unwrap_or(usize::MAX);
        let part = (part / LINE).max(1).saturating_mul(LINE);
        let fail = |cause| Failure::Program {
            message: format!("cannot allocate {bytes} bytes for the bandwidth measurement"),
            cause: Some(cause),
        };
        let parts = (0..threads).map(|_| MmapMut::map_anon(part));
        let mut parts = parts.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        // Packed weights use huge pages too. Without them the rate is a few percent lower.
        #[cfg(target_os = "linux")]
        for part in &parts {
            let _ = part.advise(memmap2::Advice::HugePage);
        }
        run_each(&mut parts, |part| part.fill(1))?;
        let level = Level::best()?;
        cpu::read(level, &[])?;
        Ok(Self { level, parts })
    }

    /// Reads the buffer once. Returns bytes per second.
    fn read(&self) -> Result<f64, Failure> {
        let (level, start) = (self.level, Instant::now());
        run_each(&self.parts, |part| {
            std::hint::black_box(cpu::read(level, part).is_ok());
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let bytes: usize = self.parts.iter().map(|part| part.len()).sum();
        Ok(bytes as f64 / seconds)
    }
}

/// Runs `work` for each part at the same time.
fn run_each<T: Send>(
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) + Sync,
) -> Result<(), Failure> {
    let work = &work;
    let started = std::thread::scope(|scope| {
        parts.into_iter().try_for_each(|part| {
            let thread = tabla::reserve::thread("tabla-probe")?;
            thread.spawn_scoped(scope, move || work(part)).map(drop)
        })
    });
    started.map_err(|cause| Failure::Program {
        message: "cannot start a thread of the bandwidth measurement".to_string(),
        cause: Some(cause),
    })
}
