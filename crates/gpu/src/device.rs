//! An open device and its error state.
#![expect(
    unsafe_code,
    reason = "wgpu disables loop bounding only through an unsafe function"
)]

use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;
use tabla_core::device::Profile;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// An open device. Clones share the device.
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) wgpu: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) failure: Arc<Failure>,
    pub(super) shader_path: Option<PathBuf>,
    pub(super) pipeline_cache_path: Option<PathBuf>,
    /// PCI vendor and device ids of the adapter.
    pub(super) pci: [u32; 2],
    /// Duration of spinning on a result before the thread sleeps.
    pub(super) spin: Duration,
    /// Maximum time of waiting for submitted work.
    pub(super) timeout: Duration,
    /// Whether tables are replayed from recorded command buffers.
    pub(super) recorded: bool,
    /// Serializes access to the queue, which wgpu and recorded replay share.
    pub(super) queue_lock: Arc<Mutex<()>>,
    /// Held while polling for device loss, so that the callback has returned once it is released.
    pub(super) poll_lock: Arc<Mutex<()>>,
    pub(super) profile: Arc<Profile>,
    /// See [`kernels`](Self::kernels).
    pub(super) kernels: Arc<OnceLock<Box<dyn Any + Send + Sync>>>,
}

impl Device {
    /// Returns the device properties used for planning.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Replaces the profile.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self {
            profile: Arc::new(profile),
            ..self
        }
    }

    /// Returns the name and size in bytes of every allocation of wgpu; `None` if the backend does
    /// not report them.
    pub fn allocations(&self) -> Option<Vec<(String, u64)>> {
        // wgpu frees dropped buffers in a poll after the device has finished with them.
        let _ = self.wait(None);
        let all = self.wgpu.generate_allocator_report()?.allocations;
        Some(all.into_iter().map(|a| (a.name, a.size)).collect())
    }

    /// Returns the compiled kernels, which all executors of this device share. Their type depends on the replay mode;
    /// `new` creates them when they are first used.
    pub(super) fn kernels<K: Any + Send + Sync>(
        &self,
        new: impl FnOnce() -> Result<K>,
    ) -> Result<&K> {
        let kernels = match self.kernels.get() {
            Some(kernels) => kernels,
            None => {
                let kernels = Box::new(new()?);
                self.kernels.get_or_init(|| kernels)
            }
        };
        let kernels = kernels.downcast_ref();
        Ok(kernels.expect("a device has one replay mode"))
    }

    /// Waits for all writes and work of wgpu, and frees what was dropped.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub(super) fn finish(&self) -> Result<()> {
        let _guard = self.queue_lock.lock();
        self.queue.submit([]);
        self.wait(None)?;
        self.failure.check()
    }

    /// Waits for a submission of wgpu, or for all.
    ///
    /// # Errors
    ///
    /// Those of `poll`, and `DeviceLost` after the timeout.
    pub(super) fn wait(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        if self.is_hung() {
            return self.failure.check();
        }
        self.poll(wgpu::PollType::Wait {
            submission_index,
            timeout: Some(self.timeout),
        })
    }

    /// Polls wgpu, which panics if the driver reports a device loss.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub(super) fn poll(&self, poll: wgpu::PollType) -> Result<()> {
        match catch_unwind(AssertUnwindSafe(|| self.wgpu.poll(poll))) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(wgpu::PollError::Timeout)) => Err(self.timed_out()),
            Ok(Err(error)) => Err(self.failure.error(error)),
            Err(_) => {
                self.failure.set_lost("reported by the driver".to_string());
                Err(self.failure.error("device lost"))
            }
        }
    }

    /// Records that submitted work does not end, and returns the error. What the work uses is never freed.
    pub(super) fn timed_out(&self) -> Error {
        let seconds = self.timeout.as_secs();
        self.failure.set_lost(format!(
            "no result after {seconds} s: the GPU hangs, or needs a longer timeout (gpu_timeout)"
        ));
        if !self.failure.is_hung.swap(true, Ordering::AcqRel) {
            // A queue waits for its work when it is dropped.
            std::mem::forget((self.wgpu.clone(), self.queue.clone()));
        }
        self.failure.error("timeout")
    }

    /// Whether submitted work does not end.
    pub(super) fn is_hung(&self) -> bool {
        self.failure.is_hung.load(Ordering::Acquire)
    }

    /// Waits for all work, so that the callback of a device loss has run.
    pub(super) fn poll_loss(&self) {
        let _guard = self.poll_lock.lock();
        if self.failure.lost.get().is_none() {
            // An error of the poll is reported by the callback.
            let _ = self.wait(None);
        }
    }

    /// Returns the error of a failed call: a recorded failure of the device, otherwise `message`.
    pub(super) fn error(&self, message: impl std::fmt::Display) -> Error {
        self.poll_loss();
        self.failure.error(message)
    }

    /// Checks for a failure of the device.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, `Memory` or `Device`; permanent after the first failure.
    pub(super) fn check(&self) -> Result<()> {
        if self.failure.check().is_err() {
            // An error may precede the callback of a device loss.
            self.poll_loss();
        }
        self.failure.check()
    }

    /// Checks for a failure of the device that was reported, without waiting for it.
    ///
    /// # Errors
    ///
    /// As `check`.
    pub fn check_reported(&self) -> Result<()> {
        self.failure.check()
    }

    /// Checks for a failure of the device. For recorded replay, it also locks the queue and the
    /// objects of wgpu: no other thread submits, and wgpu destroys no buffer that is used.
    ///
    /// # Errors
    ///
    /// As `check`.
    pub(super) fn lock(&self) -> Result<Option<MutexGuard<'_, ()>>> {
        let guard = self.recorded.then(|| self.queue_lock.lock());
        self.check()?;
        Ok(guard)
    }

    /// Runs `f` in error scopes; returns its result and the first error of wgpu on this thread.
    pub(super) fn with_error_scopes<T>(&self, f: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        let filters = [
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::Validation,
        ];
        let [memory, internal, validation] = filters.map(|f| self.wgpu.push_error_scope(f));
        let result = f();
        let validation = ready(validation.pop());
        let internal = ready(internal.pop());
        let memory = ready(memory.pop());
        (result, memory.or(internal).or(validation))
    }

    /// Creates the module of a built-in shader without loop bounding. On Vulkan, wgpu 30 applies
    /// this, and `zero_initialize_workgroup_memory`, only to modules with overrides.
    pub(super) fn trusted_module(&self, name: &str, text: &str) -> wgpu::ShaderModule {
        let checks = wgpu::ShaderRuntimeChecks {
            force_loop_bounding: false,
            ..wgpu::ShaderRuntimeChecks::checked()
        };
        // SAFETY: every loop of the built-in shaders has a fixed bound, so all loops terminate;
        // index checks stay enabled.
        unsafe {
            self.wgpu
                .create_shader_module_trusted(descriptor(name, text), checks)
        }
    }

    /// Creates the module of a custom shader.
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

/// The first error outside of an error scope.
#[derive(Debug, Default)]
pub(super) struct Failure {
    lost: OnceLock<String>,
    is_hung: AtomicBool,
    error: OnceLock<(ErrorKind, String)>,
}

impl Failure {
    /// # Errors
    ///
    /// `DeviceLost`, `Memory` or `Device`; permanent after the first failure.
    pub(super) fn check(&self) -> Result<()> {
        let error = self.error.get();
        // wgpu loses a device that is out of memory.
        if let Some((kind @ ErrorKind::Memory, error)) = error {
            let message = format_args!("gpu: out of memory; load the model again: {error}");
            return Err(Error::new(*kind, message));
        }
        if let Some(reason) = self.lost.get() {
            bail!(
                DeviceLost,
                "gpu: device lost; load the model again: {reason}"
            );
        }
        if let Some((kind, error)) = error {
            let message = format_args!("gpu: the device failed; load the model again: {error}");
            return Err(Error::new(*kind, message));
        }
        Ok(())
    }

    /// Records an error of wgpu; the first one wins.
    pub(super) fn set_error(&self, error: &wgpu::Error) {
        let kind = match error {
            wgpu::Error::OutOfMemory { .. } => ErrorKind::Memory,
            _ => ErrorKind::Device,
        };
        self.error.get_or_init(|| (kind, error.to_string()));
    }

    /// Records the loss of the device; the first reason wins.
    pub(super) fn set_lost(&self, reason: String) {
        self.lost.get_or_init(|| reason);
    }

    /// Returns the error of `check`, otherwise `message` as a `Device` error.
    pub(super) fn error(&self, message: impl std::fmt::Display) -> Error {
        match self.check() {
            Err(error) => error,
            Ok(()) => Error::new(ErrorKind::Device, format_args!("gpu: {message}")),
        }
    }
}

/// Returns the value of a future of wgpu; on native backends every future is ready.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("futures of native backends are ready"),
    }
}
