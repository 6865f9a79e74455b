//! The Vulkan device and queue of wgpu, and Vulkan objects created on them.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use crate::device::Device;
use ash::prelude::VkResult;
use ash::vk;
use parking_lot::Mutex;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result, bail};
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan;

/// Interval of checks for device loss while sleeping.
const SLEEP: Duration = Duration::from_secs(1);

/// wgpu's device, and the Vulkan objects created on it. Drop waits for the device to be idle and
/// destroys the objects, before wgpu drops the device.
pub(super) struct Context {
    pub(super) device: Device,
    pub(super) raw: ash::Device,
    queue: vk::Queue,
    family: u32,
    memory: vk::PhysicalDeviceMemoryProperties,
    objects: Mutex<Vec<Object>>,
}

/// An object: its type, its handle, and how to destroy it.
type Object = (vk::ObjectType, u64, Destroy);

/// Destroys one object.
type Destroy = Box<dyn FnOnce(&ash::Device) + Send + Sync>;

/// Checks that a device supports recorded replay.
///
/// # Errors
///
/// `Unsupported` if the backend is not Vulkan 1.1 or later.
pub(in super::super) fn check_support(device: &wgpu::Device) -> Result<()> {
    let hal = hal(device)?;
    let instance = hal.shared_instance();
    let (raw, physical) = (instance.raw_instance(), hal.raw_physical_device());
    // SAFETY: the physical device belongs to this instance.
    let properties = unsafe { raw.get_physical_device_properties(physical) };
    // `vkGetPhysicalDeviceFeatures2` requires 1.1.
    let version = properties.api_version.min(instance.instance_api_version());
    if version < vk::API_VERSION_1_1 {
        bail!(Unsupported, "gpu: recorded replay requires Vulkan 1.1");
    }
    Ok(())
}

/// Returns the Vulkan device of wgpu.
pub(super) fn hal(device: &wgpu::Device) -> Result<impl Deref<Target = vulkan::Device>> {
    // SAFETY: no object of wgpu is destroyed or changed through it.
    let hal = unsafe { device.as_hal::<Vulkan>() };
    hal.ok_or_else(|| {
        let message = "gpu: recorded replay requires Vulkan";
        Error::new(ErrorKind::Unsupported, message)
    })
}

/// Waits until the device is idle. The caller must hold the queue lock.
pub(in super::super) fn wait_idle(device: &Device) {
    debug_assert!(device.queue_lock.is_locked(), "no other thread submits");
    if let Ok(hal) = hal(&device.wgpu) {
        // SAFETY: the queue lock is held, so nothing is submitted. The error of a lost device can
        // be ignored: it is idle.
        let _ = unsafe { hal.raw_device().device_wait_idle() };
    }
}

impl Context {
    /// # Errors
    ///
    /// `Unsupported` if the backend is not Vulkan.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let hal = hal(&device.wgpu)?;
        let instance = hal.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to this instance.
        let memory =
            unsafe { instance.get_physical_device_memory_properties(hal.raw_physical_device()) };
        Ok(Self {
            device: device.clone(),
            raw: hal.raw_device().clone(),
            queue: hal.raw_queue(),
            family: hal.queue_family_index(),
            memory,
            objects: Mutex::default(),
        })
    }

    /// Takes ownership of a new object, with the function that destroys it.
    pub(super) fn own<T: vk::Handle + Copy + Send + Sync + 'static>(
        &self,
        object: T,
        destroy: unsafe fn(&ash::Device, T, Option<&vk::AllocationCallbacks<'_>>),
    ) -> T {
        let destroy = Box::new(move |raw: &ash::Device| {
            // SAFETY: this runs once, when the device is idle or lost and no other object uses this
            // one; the object was created without allocation callbacks.
            unsafe { destroy(raw, object, None) };
        });
        let mut objects = self.objects.lock();
        objects.push((T::TYPE, object.as_raw(), destroy));
        object
    }

    /// Destroys an object before the context is dropped. Neither the device nor an object that is
    /// used afterwards may use it.
    pub(super) fn destroy<T: vk::Handle>(&self, object: T) {
        let key = (T::TYPE, object.as_raw());
        let mut objects = self.objects.lock();
        let at = objects.iter().rposition(|(of, raw, _)| (*of, *raw) == key);
        if let Some(at) = at {
            let (.., destroy) = objects.remove(at);
            destroy(&self.raw);
        }
    }

    /// Converts the result of a Vulkan call, and records a device loss.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, `Memory`, or `Device` for other errors.
    pub(super) fn check<T>(&self, what: &str, result: VkResult<T>) -> Result<T> {
        let failure = &self.device.failure;
        result.map_err(|error| match error {
            vk::Result::ERROR_DEVICE_LOST => {
                failure.set_lost(format!("{what}: {error}"));
                failure.error(error)
            }
            vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
                Error::new(ErrorKind::Memory, format_args!("gpu: {what}: {error}"))
            }
            _ => failure.error(format_args!("{what}: {error}")),
        })
    }

    /// Allocates command buffers from a new pool; each can be re-recorded.
    pub(super) fn command_buffers(&self, count: usize) -> Result<Vec<vk::CommandBuffer>> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(self.family);
        // SAFETY: the device is valid, and the family is that of its queue.
        let pool = unsafe { self.raw.create_command_pool(&info, None) };
        let pool = self.check("command pool", pool)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.own(pool, ash::Device::destroy_command_pool))
            .command_buffer_count(u32::try_from(count).expect("a small constant"));
        // SAFETY: the pool is new and used only by this thread.
        let allocated = unsafe { self.raw.allocate_command_buffers(&info) };
        self.check("command buffers", allocated)
    }

    /// Creates an unsignaled fence.
    pub(super) fn fence(&self) -> Result<vk::Fence> {
        // SAFETY: the device is valid.
        let created = unsafe { self.raw.create_fence(&vk::FenceCreateInfo::default(), None) };
        Ok(self.own(self.check("fence", created)?, ash::Device::destroy_fence))
    }

    /// Creates a readback buffer; returns it and its mapped address, valid as long as `self`.
    pub(super) fn readable_buffer(&self, bytes: u64) -> Result<(vk::Buffer, NonNull<u8>)> {
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: the device is valid.
        let created = unsafe { self.raw.create_buffer(&info, None) };
        let buffer = self.own(
            self.check("readback", created)?,
            ash::Device::destroy_buffer,
        );
        // SAFETY: the buffer was created on this device.
        let requirements = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(requirements.size)
            .memory_type_index(self.readable_memory(requirements.memory_type_bits)?);
        // SAFETY: the memory type is valid for this device.
        let allocated = unsafe { self.raw.allocate_memory(&info, None) };
        let memory = self.own(self.check("readback", allocated)?, ash::Device::free_memory);
        // SAFETY: buffer and memory are unbound, and the memory meets the requirements.
        let bound = unsafe { self.raw.bind_buffer_memory(buffer, memory, 0) };
        self.check("readback", bound)?;
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible and not mapped; it stays mapped until freed.
        let mapped = unsafe { self.raw.map_memory(memory, 0, vk::WHOLE_SIZE, flags) };
        let mapped = self.check("readback", mapped)?.cast::<u8>();
        let mapped = NonNull::new(mapped).ok_or_else(|| {
            let failure = &self.device.failure;
            failure.error("readback: mapped to a null address")
        })?;
        Ok((buffer, mapped))
    }

    /// Selects a host-visible, coherent memory type; prefers cached memory.
    fn readable_memory(&self, allowed: u32) -> Result<u32> {
        type Flags = vk::MemoryPropertyFlags;
        let required = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let types = (0..).zip(self.memory.memory_types_as_slice());
        let suitable =
            types.filter(|(i, t)| allowed >> i & 1 == 1 && t.property_flags.contains(required));
        let best = suitable.max_by_key(|(_, t)| t.property_flags.contains(Flags::HOST_CACHED));
        match best {
            Some((i, _)) => Ok(i),
            None => bail!(Device, "gpu: no host-visible memory type for readback"),
        }
    }

    /// Returns the Vulkan buffer of a buffer of wgpu, valid until the arena drops it; pending writes are submitted before.
    /// The caller must hold the queue lock.
    pub(super) fn buffer(&self, buffer: &wgpu::Buffer) -> Result<vk::Buffer> {
        // SAFETY: the buffer is not destroyed through it.
        let hal = unsafe { buffer.as_hal::<Vulkan>() };
        let failure = &self.device.failure;
        let hal = hal.ok_or_else(|| failure.error("a buffer was destroyed"))?;
        // SAFETY: as above.
        Ok(unsafe { hal.raw_handle() })
    }

    /// Submits command buffers. The caller must hold the queue lock.
    pub(super) fn submit(&self, commands: &[vk::CommandBuffer], fence: vk::Fence) -> Result<()> {
        let info = vk::SubmitInfo::default().command_buffers(commands);
        // SAFETY: the command buffers are fully recorded, and pending only if recorded for
        // simultaneous use; the fence is unsignaled and not pending. The caller holds the queue
        // lock, so the buffers they use are valid and no other thread uses the queue.
        let submitted = unsafe { self.raw.queue_submit(self.queue, &[info], fence) };
        self.check("submission", submitted)
    }

    /// Waits for all submitted work. The caller must hold the queue lock.
    pub(super) fn wait_idle(&self) -> Result<()> {
        self.device.check()?;
        let fence = self.fence()?;
        self.submit(&[], fence)?;
        self.wait(fence)?;
        self.destroy(fence);
        Ok(())
    }

    /// Waits for a submitted fence, at most until the device's timeout: spins for at most its `spin`, then sleeps.
    pub(super) fn wait(&self, fence: vk::Fence) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.device.spin {
            // SAFETY: the fence belongs to this device.
            let status = unsafe { self.raw.get_fence_status(fence) };
            if self.check("fence", status)? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let timeout = self.device.timeout;
        let sleep = u64::try_from(SLEEP.min(timeout).as_nanos()).expect("at most a second");
        loop {
            // SAFETY: the fence belongs to this device.
            let waited = unsafe { self.raw.wait_for_fences(&[fence], true, sleep) };
            match waited {
                Err(vk::Result::TIMEOUT) => self.device.check()?,
                other => return self.check("fence", other),
            }
            if start.elapsed() >= timeout {
                return Err(self.device.timed_out());
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _guard = self.device.queue_lock.lock();
        let idle = self.wait_idle();
        if self.device.is_hung() {
            // The work uses the objects.
            return;
        }
        if idle.is_err() {
            wait_idle(&self.device);
        }
        for (.., destroy) in self.objects.get_mut().drain(..).rev() {
            destroy(&self.raw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceOptions, open};

    /// The error comes after the timeout, and what is used afterwards does not wait for the GPU.
    #[test]
    fn work_without_an_end_is_a_device_loss() {
        let options = DeviceOptions::default().allow_software(true);
        let Ok(Some(mut device)) = open(&options) else {
            return;
        };
        let hour = device.timeout;
        device.timeout = Duration::from_millis(50);
        let context = Context::new(&device).expect("Vulkan");
        // As the fence of a submission that never ends.
        let fence = context.fence().expect("a fence");
        let error = context.wait(fence).expect_err("no result");
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert!(error.message().contains("no result after"), "{error}");
        device.timeout = hour;
        let kinds = [context.wait_idle(), device.finish(), device.check()];
        for error in kinds.map(|result| result.expect_err("it is lost")) {
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        }
        drop(context);
        assert!(device.is_hung());
    }
}
