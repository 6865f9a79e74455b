//! The buffers behind the places of tables.

use super::device::Device;
use tabla_core::device::Profile;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::{Span, Upload};
use tabla_core::op::table::{self, BufferId, SlotInfo, Table};

/// Buffers are whole multiples of this: kernels read ends of rows in words of up to 16 bytes,
/// two at a time, and cut off what is beyond.
const ALIGN: u64 = 32;

/// A place and its memory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) place: BufferId,
    /// The largest slot of the place.
    pub(super) slot: SlotInfo,
    /// Bytes that count; the buffer may be longer.
    pub(super) bytes: u64,
    pub(super) buffer: wgpu::Buffer,
}

/// All places, in their order.
#[derive(Debug)]
pub(super) struct Arena {
    entries: Vec<Entry>,
    /// What was sent there.
    pub(super) upload: Upload,
}

impl Arena {
    /// Memory for every place that a table names, zeros at first.
    ///
    /// # Errors
    ///
    /// `TooLarge` for what is over the device's limit, `Memory` for what it has no room for.
    pub(super) fn new(device: &Device, tables: &[Table]) -> Result<Self> {
        let mut total = 0;
        let entries = table::places(tables)
            .into_values()
            .map(|slot| entry(device, slot, &mut total));
        Ok(Self {
            entries: entries.collect::<Result<_>>()?,
            upload: Upload::default(),
        })
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn find(&self, place: BufferId) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&place, |e| e.place);
        at.ok().map(|i| &self.entries[i])
    }

    /// The entry of a place, if this range lies in it.
    ///
    /// # Errors
    ///
    /// `Argument` for a place that no table names or a range that leaves it.
    pub(super) fn range(&self, place: BufferId, offset: usize, bytes: usize) -> Result<&Entry> {
        let Some(entry) = self.find(place) else {
            bail!(Argument, "gpu: no table names {place:?}");
        };
        let end = (offset as u64).checked_add(bytes as u64);
        if end.is_none_or(|end| end > entry.bytes) {
            bail!(
                Argument,
                "gpu: {place:?}: {bytes} bytes at {offset} leave its {} bytes",
                entry.bytes
            );
        }
        Ok(entry)
    }

    /// As `range`, for whoever writes there.
    ///
    /// # Errors
    ///
    /// `Argument` for weights too, and for what is no whole words.
    pub(super) fn writable(&self, place: BufferId, offset: usize, bytes: usize) -> Result<&Entry> {
        let entry = self.range(place, offset, bytes)?;
        if matches!(place, BufferId::Weight(..)) {
            bail!(Argument, "gpu: {place:?}: weights are written by linking");
        }
        whole_words(place, offset, bytes)?;
        Ok(entry)
    }

    /// Checks that these spans are of known places, in whole words.
    ///
    /// # Errors
    ///
    /// `Argument` where one is not.
    pub(super) fn copyable(&self, spans: &[Span]) -> Result<()> {
        spans.iter().try_for_each(|span| {
            self.range(span.place, span.offset, span.bytes)?;
            whole_words(span.place, span.offset, span.bytes)
        })
    }

    /// Writes the zeros that wgpu leaves out until it sees that a buffer is used.
    pub(super) fn clear(&self, device: &Device) {
        let mut encoder = device.wgpu.create_command_encoder(&Default::default());
        for entry in &self.entries {
            encoder.clear_buffer(&entry.buffer, 0, None);
        }
        let _turn = device.turn.lock();
        device.queue.submit([encoder.finish()]);
    }
}

fn whole_words(place: BufferId, offset: usize, bytes: usize) -> Result<()> {
    if !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
        bail!(
            Argument,
            "gpu: {place:?}: {bytes} bytes at {offset} are no whole words"
        );
    }
    Ok(())
}

/// Bytes of a slot that count, and of its buffer.
pub(super) fn sizes(slot: &SlotInfo, profile: &Profile) -> [u64; 2] {
    let bytes = match slot.place {
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
            "gpu: {}: {size} bytes are over the {limit} that this device binds at once",
            slot.name
        );
    }
    device.check()?;
    let (buffer, error) = device.caught(|| {
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
        // A lost device fails small requests too, in words of memory.
        device.check()?;
        return Err(Error::new(
            ErrorKind::Memory,
            format_args!(
                "gpu: {}: {size} bytes after {total} others: {error}",
                slot.name
            ),
        ));
    }
    *total += size;
    Ok(Entry {
        place: slot.place,
        slot: slot.clone(),
        bytes,
        buffer,
    })
}
