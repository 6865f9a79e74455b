//! Device buffers of the buffer ids of tables.

use super::device::Device;
use tabla_core::device::Profile;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::{Span, Upload, is_private};
use tabla_core::op::table::{self, BufferId, SlotInfo, Table};

/// Buffer sizes are multiples of this, in bytes: kernels read row ends in words of up to 16 bytes,
/// two at a time, and mask the elements after the end.
const ALIGN: u64 = 32;

/// A buffer id and its device buffer.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: BufferId,
    /// Largest slot with this buffer id.
    pub(super) slot: SlotInfo,
    /// Size in bytes without the padding of the buffer.
    pub(super) bytes: u64,
    pub(super) buffer: wgpu::Buffer,
    /// Whether it belongs to added tables.
    added: bool,
}

/// A byte range of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferRange<'a> {
    pub(super) buffer: &'a wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The buffers of all buffer ids.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Sorted by buffer id.
    entries: Vec<Entry>,
    /// Size and duration of the upload of weights and constants.
    pub(super) upload: Upload,
}

impl Arena {
    /// Allocates a zeroed buffer for every buffer id in the tables that is not shared with `linked`.
    ///
    /// # Errors
    ///
    /// `TooLarge` for a buffer over the device's limit, `Memory` if the allocation fails,
    /// `Internal` for a shared buffer that is too small or belongs to other added tables.
    pub(super) fn new(device: &Device, tables: &[Table], linked: &Self) -> Result<Self> {
        let (mut total, mut entries) = (0, Vec::new());
        for slot in table::buffers(tables).into_values() {
            if !linked.shares(slot)? {
                entries.push(entry(device, slot, &mut total)?);
            }
        }
        Ok(Self {
            entries,
            upload: Upload::default(),
        })
    }

    /// Whether added tables share the buffer of a slot.
    fn shares(&self, slot: &SlotInfo) -> Result<bool> {
        let Some(entry) = self.find(slot.buffer).filter(|e| !is_private(e.id)) else {
            return Ok(false);
        };
        if let BufferId::Weight(..) = entry.id {
            let shape = |slot: &SlotInfo| (slot.dtype, slot.rows, slot.cols);
            return Ok(shape(slot) == shape(&entry.slot));
        }
        if entry.added {
            bail!(
                Internal,
                "gpu: buffer {:?} belongs to other added tables",
                entry.id
            );
        }
        if slot.bytes() > entry.bytes {
            bail!(
                Internal,
                "gpu: added tables need {} bytes for {}, but the linked buffer has {}",
                slot.bytes(),
                slot.name,
                entry.bytes
            );
        }
        Ok(true)
    }

    /// Adds the buffers of added tables that the host may read and write.
    pub(super) fn add(&mut self, own: &Self) {
        let visible = |e: &&Entry| !is_private(e.id) && !matches!(e.id, BufferId::Weight(..));
        let added = own.entries.iter().filter(visible).cloned();
        self.entries.extend(added.map(|entry| Entry {
            added: true,
            ..entry
        }));
        self.entries.sort_unstable_by_key(|entry| entry.id);
    }

    /// Removes the buffers of removed tables.
    pub(super) fn remove(&mut self, own: &Self) {
        let removed = |entry: &Entry| entry.added && own.find(entry.id).is_some();
        self.entries.retain(|entry| !removed(entry));
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn find(&self, id: BufferId) -> Option<&Entry> {
        let index = self.entries.binary_search_by_key(&id, |e| e.id);
        index.ok().map(|i| &self.entries[i])
    }

    /// Returns the entry of a buffer id after checking a byte range against its size.
    ///
    /// # Errors
    ///
    /// `Argument` for an unknown buffer id or a range out of bounds.
    pub(super) fn range(&self, id: BufferId, offset: usize, bytes: usize) -> Result<&Entry> {
        let Some(entry) = self.find(id) else {
            bail!(Argument, "gpu: no table uses buffer {id:?}");
        };
        let end = (offset as u64).checked_add(bytes as u64);
        if end.is_none_or(|end| end > entry.bytes) {
            bail!(
                Argument,
                "gpu: buffer {id:?}: {bytes} bytes at offset {offset} exceed its {} bytes",
                entry.bytes
            );
        }
        Ok(entry)
    }

    /// Returns the entry of a buffer id after checking a byte range to be written.
    ///
    /// # Errors
    ///
    /// As `range`, and `Argument` for weights and for a range that is not in whole words.
    pub(super) fn writable(&self, id: BufferId, offset: usize, bytes: usize) -> Result<&Entry> {
        let entry = self.range(id, offset, bytes)?;
        if matches!(id, BufferId::Weight(..)) {
            bail!(Argument, "gpu: buffer {id:?}: weights are read-only");
        }
        check_words(id, offset, bytes)?;
        Ok(entry)
    }

    /// Returns the ranges of spans after checking that all are in bounds and in whole words.
    ///
    /// # Errors
    ///
    /// `Argument` if a span is not.
    pub(super) fn copied<'a>(
        &'a self,
        spans: &'a [Span],
    ) -> Result<impl Iterator<Item = BufferRange<'a>>> {
        for span in spans {
            self.range(span.buffer, span.offset, span.bytes)?;
            check_words(span.buffer, span.offset, span.bytes)?;
        }
        Ok(spans.iter().filter_map(|span| {
            Some(BufferRange {
                buffer: &self.find(span.buffer)?.buffer,
                offset: span.offset as u64,
                bytes: span.bytes as u64,
            })
        }))
    }

    /// Zeroes all buffers. wgpu zeroes a buffer only on its first use through wgpu.
    pub(super) fn clear(&self, device: &Device) {
        let mut encoder = device.wgpu.create_command_encoder(&Default::default());
        for entry in &self.entries {
            encoder.clear_buffer(&entry.buffer, 0, None);
        }
        let _guard = device.queue_lock.lock();
        device.queue.submit([encoder.finish()]);
    }
}

fn check_words(id: BufferId, offset: usize, bytes: usize) -> Result<()> {
    if !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
        bail!(
            Argument,
            "gpu: buffer {id:?}: {bytes} bytes at offset {offset} are not in whole words of 4 bytes"
        );
    }
    Ok(())
}

/// Returns the size of a slot and the size of its padded buffer, in bytes.
pub(super) fn sizes(slot: &SlotInfo, profile: &Profile) -> [u64; 2] {
    let bytes = match slot.buffer {
        BufferId::Weight(..) => (profile.weight_bytes)(slot.dtype, slot.rows, slot.cols),
        _ => slot.bytes(),
    };
    [bytes, bytes.max(1).next_multiple_of(ALIGN)]
}

fn entry(device: &Device, slot: &SlotInfo, total: &mut u64) -> Result<Entry> {
    let [bytes, size] = sizes(slot, device.profile());
    let limit = device.profile().binding_bytes_max;
    if size > limit {
        bail!(
            TooLarge,
            "gpu: {}: {size} bytes are over the binding limit of {limit} bytes of this device",
            slot.name
        );
    }
    device.check()?;
    let (buffer, error) = device.with_error_scopes(|| {
        device.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some(&slot.name),
            size,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        })
    });
    if let Some(error) = error {
        // A lost device also reports out of memory.
        device.check()?;
        return Err(Error::new(
            ErrorKind::Memory,
            format_args!(
                "gpu: {}: allocating {size} bytes after {total} bytes failed: {error}",
                slot.name
            ),
        ));
    }
    *total += size;
    Ok(Entry {
        id: slot.buffer,
        slot: slot.clone(),
        bytes,
        buffer,
        added: false,
    })
}
