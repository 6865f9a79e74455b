//! An open device, and what goes wrong on it.
#![expect(
    unsafe_code,
    reason = "wgpu compiles loops without its own counters only through an unsafe function"
)]

use parking_lot::Mutex;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use tabla_core::device::Profile;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// An open device. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) wgpu: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) failure: Arc<Failure>,
    pub(super) shader_folder: Option<PathBuf>,
    pub(super) kernel_folder: Option<PathBuf>,
    /// The adapter's numbers: vendor and device.
    pub(super) pci: [u32; 2],
    /// Whether tables are replayed from recorded command buffers.
    pub(super) recorded: bool,
    /// Held by whoever uses the queue, where wgpu is not alone with it.
    pub(super) turn: Arc<Mutex<()>>,
    /// Held by whoever polls to hear of a loss: its callback has returned once this is free.
    pub(super) hearing: Arc<Mutex<()>>,
    pub(super) profile: Arc<Profile>,
}

impl Device {
    /// The facts that planning uses.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The same device, for tables that are planned with these facts.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self {
            profile: Arc::new(profile),
            ..self
        }
    }

    /// The name and bytes of every buffer that wgpu has on it, where the back end tells.
    pub fn allocations(&self) -> Option<Vec<(String, u64)>> {
        // Buffers go once the device is done with them, and with a poll behind that.
        let _ = self.wgpu.poll(wgpu::PollType::wait_indefinitely());
        let all = self.wgpu.generate_allocator_report()?.allocations;
        Some(all.into_iter().map(|a| (a.name, a.size)).collect())
    }

    /// Has a loss tell of itself: its callback comes with a poll once all work has ended.
    pub(super) fn hear(&self) {
        let _alone = self.hearing.lock();
        // An error of the poll says no more than the callback does.
        let _ = self.wgpu.poll(wgpu::PollType::wait_indefinitely());
    }

    /// Why something did not work: the loss of the device, or else `otherwise`.
    pub(super) fn explain(&self, otherwise: impl std::fmt::Display) -> Error {
        self.hear();
        self.failure.explain(otherwise)
    }

    /// What went wrong so far. An error may be all that is known yet of a loss.
    ///
    /// # Errors
    ///
    /// `DeviceLost` or `Device`, from the first failure on for ever.
    pub(super) fn check(&self) -> Result<()> {
        if self.failure.check().is_err() {
            self.hear();
        }
        self.failure.check()
    }

    /// Runs `make` and catches what wgpu has to say about it on this thread.
    pub(super) fn caught<T>(&self, make: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        let filters = [
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::Validation,
        ];
        let [memory, internal, validation] = filters.map(|f| self.wgpu.push_error_scope(f));
        let made = make();
        let validation = ready(validation.pop());
        let internal = ready(internal.pop());
        let memory = ready(memory.pop());
        (made, memory.or(internal).or(validation))
    }

    /// A built-in shader, without the loop counters that wgpu adds to text it does not trust. On
    /// Vulkan wgpu 30 heeds that, as it does a wish for workgroup memory that is not zeroed, only
    /// in modules with overrides.
    pub(super) fn trusted_module(&self, name: &str, text: &str) -> wgpu::ShaderModule {
        let checks = wgpu::ShaderRuntimeChecks {
            force_loop_bounding: false,
            ..wgpu::ShaderRuntimeChecks::checked()
        };
        // SAFETY: every loop of the built-in shaders counts towards a bound that it does not
        // change, so all end; the checks of indices stay on.
        unsafe {
            self.wgpu
                .create_shader_module_trusted(descriptor(name, text), checks)
        }
    }

    /// A shader of somebody else's.
    pub(super) fn module(&self, name: &str, text: &str) -> wgpu::ShaderModule {
        self.wgpu.create_shader_module(descriptor(name, text))
    }
}

fn descriptor<'a>(name: &'a str, text: &'a str) -> wgpu::ShaderModuleDescriptor<'a> {
    wgpu::ShaderModuleDescriptor {
        label: Some(name),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    }
}

/// The first thing that went wrong outside a scope, kept until somebody asks.
#[derive(Debug, Default)]
pub(super) struct Failure {
    lost: OnceLock<String>,
    pub(super) error: OnceLock<String>,
}

impl Failure {
    /// # Errors
    ///
    /// `DeviceLost` or `Device`, from the first failure on for ever.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(reason) = self.lost.get() {
            bail!(
                DeviceLost,
                "gpu: the device is lost, load the model again: {reason}"
            );
        }
        if let Some(error) = self.error.get() {
            bail!(Device, "gpu: {error}");
        }
        Ok(())
    }

    /// Says that the device was lost, where that has not been said.
    pub(super) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason);
    }

    /// `check`, or else `otherwise` as a `Device` error: for calls that failed for no known reason.
    pub(super) fn explain(&self, otherwise: impl std::fmt::Display) -> Error {
        match self.check() {
            Err(error) => error,
            Ok(()) => Error::new(ErrorKind::Device, format_args!("gpu: {otherwise}")),
        }
    }
}

/// The value of a future that wgpu has ready, which on native back ends is every one.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("native back ends answer at once"),
    }
}
