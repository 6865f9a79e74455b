//! The Vulkan device and queue that wgpu has, and what is made on them beside wgpu.
#![expect(
    unsafe_code,
    reason = "objects are made and awaited through functions of Vulkan"
)]

use crate::arena::Entry;
use crate::device::Device;
use ash::prelude::VkResult;
use ash::vk;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result, bail};
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan;

/// How long to ask for a fence again and again before the thread sleeps for it: waking up takes
/// longer than most tokens have left by then.
const SPIN: Duration = Duration::from_millis(1);
/// How long to sleep before asking whether the device is lost, in nanoseconds.
const SLEEP: u64 = 1_000_000_000;

/// wgpu's device, and all objects that were made on it here: they are destroyed with this, once
/// the device has come to rest and before wgpu lets go of it.
pub(super) struct Context {
    pub(super) device: Device,
    pub(super) raw: ash::Device,
    queue: vk::Queue,
    family: u32,
    memory: vk::PhysicalDeviceMemoryProperties,
    objects: Mutex<Vec<Destroy>>,
}

/// Destroys one object.
type Destroy = Box<dyn FnOnce(&ash::Device) + Send + Sync>;

/// Whether a device can replay from recorded command buffers.
///
/// # Errors
///
/// `Unsupported` where wgpu runs on something else than Vulkan, or on 1.0.
pub(in super::super) fn able(device: &wgpu::Device) -> Result<()> {
    let hal = hal(device)?;
    let instance = hal.shared_instance();
    let (raw, physical) = (instance.raw_instance(), hal.raw_physical_device());
    // SAFETY: the physical device is of this instance.
    let facts = unsafe { raw.get_physical_device_properties(physical) };
    // What the shaders may use is asked for in the way of 1.1.
    if facts.api_version.min(instance.instance_api_version()) < vk::API_VERSION_1_1 {
        bail!(Unsupported, "gpu: recorded replay wants Vulkan 1.1");
    }
    Ok(())
}

/// wgpu's device as Vulkan's.
pub(super) fn hal(device: &wgpu::Device) -> Result<impl Deref<Target = vulkan::Device>> {
    // SAFETY: nothing of wgpu is destroyed or changed through it.
    let hal = unsafe { device.as_hal::<Vulkan>() };
    hal.ok_or_else(|| {
        let what = "gpu: recorded replay is for Vulkan";
        Error::new(ErrorKind::Unsupported, what)
    })
}

/// The buffer of an entry, as long as its place has it.
pub(super) fn buffer(device: &Device, entry: &Entry) -> Result<vk::Buffer> {
    // SAFETY: the buffer is not destroyed through it.
    let hal = unsafe { entry.buffer.as_hal::<Vulkan>() };
    let hal = hal.ok_or_else(|| device.failure.explain("a buffer is gone"))?;
    // SAFETY: as above.
    Ok(unsafe { hal.raw_handle() })
}

/// Waits until the device has done all it was given. Nobody may use the queue meanwhile.
pub(in super::super) fn idle(device: &wgpu::Device, _turn: &MutexGuard<'_, ()>) {
    if let Ok(hal) = hal(device) {
        // SAFETY: the turn is held: nobody submits. A device that is lost is as idle as can be.
        let _ = unsafe { hal.raw_device().device_wait_idle() };
    }
}

impl Context {
    /// # Errors
    ///
    /// `Unsupported` where wgpu runs on something else than Vulkan.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let hal = hal(&device.wgpu)?;
        let instance = hal.shared_instance().raw_instance();
        // SAFETY: the physical device is of this instance.
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

    /// Takes an object that was just made into keeping, with the function that destroys its kind.
    pub(super) fn keep<T: vk::Handle + Copy + Send + Sync + 'static>(
        &self,
        object: T,
        destroy: unsafe fn(&ash::Device, T, Option<&vk::AllocationCallbacks<'_>>),
    ) -> T {
        self.objects.lock().push(Box::new(move |raw| {
            // SAFETY: this runs once, when the device is idle or lost and everything that was
            // made later is gone; the object was made without callbacks.
            unsafe { destroy(raw, object, None) };
        }));
        object
    }

    /// What a call came to; the first loss is remembered.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, `Memory`, or else `Device`.
    pub(super) fn checked<T>(&self, what: &str, result: VkResult<T>) -> Result<T> {
        let failure = &self.device.failure;
        result.map_err(|error| match error {
            vk::Result::ERROR_DEVICE_LOST => {
                failure.lose(format!("{what}: {error}"));
                failure.explain(error)
            }
            vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
                Error::new(ErrorKind::Memory, format_args!("gpu: {what}: {error}"))
            }
            _ => failure.explain(format_args!("{what}: {error}")),
        })
    }

    /// Command buffers of a pool of their own, each of which may be recorded anew.
    pub(super) fn command_buffers(&self, count: usize) -> Result<Vec<vk::CommandBuffer>> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(self.family);
        // SAFETY: the device lives, and the family is that of its queue.
        let pool = unsafe { self.raw.create_command_pool(&info, None) };
        let pool = self.checked("command pool", pool)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.keep(pool, ash::Device::destroy_command_pool))
            .command_buffer_count(u32::try_from(count).expect("a small constant"));
        // SAFETY: the pool was just made and is used by this thread alone.
        let made = unsafe { self.raw.allocate_command_buffers(&info) };
        self.checked("command buffers", made)
    }

    /// A fence that nobody has signalled.
    pub(super) fn fence(&self) -> Result<vk::Fence> {
        // SAFETY: the device lives.
        let made = unsafe { self.raw.create_fence(&vk::FenceCreateInfo::default(), None) };
        Ok(self.keep(self.checked("fence", made)?, ash::Device::destroy_fence))
    }

    /// A buffer to copy into, and where the host sees its bytes: for as long as this lives.
    pub(super) fn readable_buffer(&self, bytes: u64) -> Result<(vk::Buffer, NonNull<u8>)> {
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: the device lives.
        let made = unsafe { self.raw.create_buffer(&info, None) };
        let buffer = self.keep(self.checked("readback", made)?, ash::Device::destroy_buffer);
        // SAFETY: the buffer was just made on this device.
        let needs = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(self.readable_memory(needs.memory_type_bits)?);
        // SAFETY: the type is one of the device's.
        let made = unsafe { self.raw.allocate_memory(&info, None) };
        let memory = self.keep(self.checked("readback", made)?, ash::Device::free_memory);
        // SAFETY: buffer and memory are fresh, and the memory is what the buffer asked for.
        let bound = unsafe { self.raw.bind_buffer_memory(buffer, memory, 0) };
        self.checked("readback", bound)?;
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is visible to the host and not mapped; it stays mapped until freed.
        let mapped = unsafe { self.raw.map_memory(memory, 0, vk::WHOLE_SIZE, flags) };
        let mapped = self.checked("readback", mapped)?.cast::<u8>();
        let mapped = NonNull::new(mapped).ok_or_else(|| {
            let failure = &self.device.failure;
            failure.explain("the memory for reading back has no address")
        })?;
        Ok((buffer, mapped))
    }

    /// A type of memory that the host sees without asking, through its cache where there is one.
    fn readable_memory(&self, allowed: u32) -> Result<u32> {
        type Flags = vk::MemoryPropertyFlags;
        let seen = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let types = (0..).zip(self.memory.memory_types_as_slice());
        let able = types.filter(|(i, t)| allowed >> i & 1 == 1 && t.property_flags.contains(seen));
        let best = able.max_by_key(|(_, t)| t.property_flags.contains(Flags::HOST_CACHED));
        match best {
            Some((i, _)) => Ok(i),
            None => bail!(Device, "gpu: no memory to read back through"),
        }
    }

    /// The turn to use the queue and what wgpu has on the device: while it is held, nobody else
    /// submits, and wgpu destroys no buffer that something here keeps.
    ///
    /// # Errors
    ///
    /// As the device failed before.
    pub(super) fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        let turn = self.device.turn.lock();
        self.device.check()?;
        Ok(turn)
    }

    /// Submits command buffers.
    pub(super) fn submit(&self, commands: &[vk::CommandBuffer], fence: vk::Fence) -> Result<()> {
        let info = vk::SubmitInfo::default().command_buffers(commands);
        // SAFETY: the command buffers are recorded whole, and pending only if they may be so
        // twice; the fence is unsignalled and not pending. The caller has the turn: the buffers
        // that they touch live, and nobody else uses the queue.
        let submitted = unsafe { self.raw.queue_submit(self.queue, &[info], fence) };
        self.checked("submission", submitted)
    }

    /// Waits for a fence that was submitted: a bounded spin, then sleep.
    pub(super) fn wait(&self, fence: vk::Fence) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < SPIN {
            // SAFETY: the fence is one of this device's.
            let status = unsafe { self.raw.get_fence_status(fence) };
            if self.checked("fence", status)? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        loop {
            // SAFETY: the fence is one of this device's.
            let waited = unsafe { self.raw.wait_for_fences(&[fence], true, SLEEP) };
            match waited {
                Err(vk::Result::TIMEOUT) => self.device.check()?,
                other => return self.checked("fence", other),
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        idle(&self.device.wgpu, &self.device.turn.lock());
        for destroy in self.objects.get_mut().drain(..).rev() {
            destroy(&self.raw);
        }
    }
}
