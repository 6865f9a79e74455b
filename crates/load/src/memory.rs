//! Sizes of the KV cache and of the prefill chunk, checked against free memory.

use super::host_memory::host_free_bytes;
use super::options::{CONTEXT_DEFAULT, CONTEXT_TRAINED, LoadOptions, SEQUENCES_MAX, WeightMemory};
use crate::arch::{Arch, Config};
use crate::device::{DeviceKind, Precision, Profile};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::exec::cpu::MemoryUsage;
use crate::model::{BEAMS_MAX, SCORE_TOKENS, STEP_ROWS_MAX};
use crate::op::pages::Pages;
use crate::op::params::PAGE;

/// The KV cache of a model.
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    /// Number of sequences, or of recordings of a speech model.
    pub(super) sequences: u32,
    /// Rows of the page table for each of them: the beams of a recording.
    pub(super) beams: u32,
    /// Positions per sequence.
    pub context: u32,
    pub(super) dtype: DType,
    pub(super) pages: Pages,
    /// Size in bytes, with the recurrent states.
    pub bytes: u64,
    /// Free memory of the device in bytes, before the cache is allocated.
    free: u64,
}

impl Cache {
    /// Returns the number of rows of the page table.
    pub fn rows(&self) -> u32 {
        self.sequences * self.beams
    }
}

/// Maximum context length. Products with head counts then fit 64 bits.
const CONTEXT_MAX: u32 = 1 << 27;

/// Storage types supported by [`LoadOptions::cache_type`].
pub const CACHE_TYPES: [DType; 3] = [DType::F16, DType::F32, DType::Q8_0];

/// The head dimension must be a multiple of this for a `Q8_0` KV cache.
const Q8_HEAD_MULTIPLE: u32 = 64;

/// Row counts of the decode tables: powers of two, so that at most half of a table is idle for any
/// number of active sequences, and one for scoring or verifying several tokens of one sequence.
pub(super) fn step_rows(sequences: u32) -> impl Iterator<Item = u32> {
    let widest = sequences.next_power_of_two().min(STEP_ROWS_MAX);
    let rows = std::iter::successors(Some(1), |rows| Some(2 * rows));
    let rows = rows.take_while(move |rows| *rows <= widest);
    rows.chain((widest < SCORE_TOKENS).then_some(SCORE_TOKENS))
}

/// Chooses the context length and the layout of the KV cache.
pub fn cache(
    arch: &Arch,
    config: &Config,
    options: &LoadOptions,
    profile: &Profile,
) -> Result<Cache> {
    let context = match options.max_context {
        0 => config.context.min(CONTEXT_DEFAULT),
        CONTEXT_TRAINED => config.context,
        n if n > CONTEXT_MAX => bail!(
            TooLarge,
            "context length {n} is over the limit of {CONTEXT_MAX}"
        ),
        // Learned position embeddings and encoders do not go beyond the trained length.
        n if arch.encoder || config.layer_configs.iter().all(|l| l.rope.is_none()) => {
            n.min(config.context)
        }
        n => n,
    };
    if context > config.context {
        tracing::warn!(
            "context length {context} is over the trained context length of {}",
            config.context
        );
    }
    let dtype = match (options.cache_type, options.precision) {
        (Some(dtype), _) => dtype,
        (None, Precision::Fast) => DType::F16,
        (None, Precision::Exact) => DType::F32,
    };
    let (what, limit) = match config.speech {
        None => ("sequences", SEQUENCES_MAX),
        Some(_) => ("recordings at once", WINDOWS_MAX),
    };
    let sequences = match options.sequences {
        n if n > limit => bail!(TooLarge, "{n} {what} are over the limit of {limit}"),
        n => n.max(1),
    };
    // A drafting head has full attention also if no layer has.
    let layers = config.layer_configs.iter().copied().chain(config.caches());
    let windows: Vec<u32> = layers.map(|layer| layer.window).collect();
    // Upper bound: memory may force a smaller chunk later.
    let rows = preferred_chunk(options, context, profile).max(STEP_ROWS_MAX);
    let mut cache = Cache {
        sequences,
        beams: 1,
        context,
        dtype,
        pages: Pages::new(sequences, context, &windows, rows),
        bytes: 0,
        free: free_bytes(profile),
    };
    if let Some(encoder) = &config.speech {
        cache.beams = BEAMS_MAX;
        cache.pages = speech_pages(sequences, context, encoder.context);
    }
    let keeps_prefixes = !arch.encoder && config.speech.is_none();
    let state_bytes = state_bytes(config);
    if state_bytes > 0 {
        cache.pages = cache.pages.with_states(states_min(sequences));
    }
    if let Some(bytes) = options.prefix_bytes.filter(|_| keeps_prefixes) {
        // States get half of the memory: with one, many pages become usable.
        let (states, pages) = match state_bytes {
            0 => (0, bytes),
            _ => (bytes / 2 / state_bytes, bytes - bytes / 2),
        };
        let pages = pages / page_bytes(config, dtype).max(1);
        let [pages, states] = [pages, states].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        cache.pages = cache.pages.keeping(pages);
        if state_bytes > 0 {
            let pool = states_min(sequences).saturating_add(states);
            cache.pages = cache.pages.with_states(pool);
        }
    }
    if !arch.encoder {
        check_type(dtype, config)?;
        cache.bytes = cache_bytes(config, &cache, profile)?;
    }
    Ok(cache)
}

/// Maximum number of windows that a speech model decodes at once.
const WINDOWS_MAX: u32 = SEQUENCES_MAX / BEAMS_MAX;

/// Returns the KV cache of a speech model: for each window, pages of the decoder for every beam and one
/// more for each to copy a shared page, and the cross-attention of `positions` positions.
fn speech_pages(windows: u32, context: u32, positions: u32) -> Pages {
    let [whole, ringed] = [context, positions].map(|n| n.div_ceil(PAGE));
    let whole_pool = windows * BEAMS_MAX * (whole + 1);
    let ringed_pool = windows * ringed;
    Pages {
        whole,
        ringed,
        window: positions,
        whole_pool,
        // The two kinds of layers are told apart by the size of their pool.
        ringed_pool: ringed_pool + u32::from(ringed_pool == whole_pool),
        states: 0,
        states_pool: 0,
        kept: 0,
    }
}

/// Checks the storage type of the KV cache. In [`DType::Q8_0`] the scales follow all codes of a row,
/// and the scales of a head must be whole words.
fn check_type(dtype: DType, config: &Config) -> Result<()> {
    if !CACHE_TYPES.contains(&dtype) {
        let known = CACHE_TYPES.map(DType::name).join(", ");
        bail!(
            Argument,
            "unsupported KV cache type {dtype}; supported types are {known}"
        );
    }
    let mut heads = config.caches().map(|layer| layer.head_dim);
    match heads.find(|head| !head.is_multiple_of(Q8_HEAD_MULTIPLE)) {
        Some(head) if dtype == DType::Q8_0 => bail!(
            Unsupported,
            "a {dtype} KV cache requires a head dimension that is a multiple of \
             {Q8_HEAD_MULTIPLE}, got {head}"
        ),
        _ => Ok(()),
    }
}

/// Returns the minimum number of states: for each sequence its own and one that is kept when it continues
/// in another, and a few that are kept for prefix reuse.
fn states_min(sequences: u32) -> u32 {
    2 * sequences + STATES_KEPT
}

/// Number of states that are kept for prefix reuse without a budget.
const STATES_KEPT: u32 = 2;

/// Returns the bytes of the state of a sequence, over all layers; 0 without recurrent layers.
pub(super) fn state_bytes(config: &Config) -> u64 {
    let layers = config.layer_configs.iter();
    let layers = layers.filter(|layer| layer.mixer.has_state());
    let bytes = config
        .recurrent
        .map_or(0, |recurrent| recurrent.state_bytes().iter().sum());
    layers.count() as u64 * bytes
}

/// Returns the bytes of a page, over all layers.
fn page_bytes(config: &Config, dtype: DType) -> u64 {
    let caches = config.caches();
    let rows = caches.map(|layer| dtype.bytes(layer.cache_width().into()).unwrap_or(0));
    rows.map(|row| u64::from(PAGE) * row).sum()
}

/// Returns the bytes of all keys and values, checked against free memory and the binding limit of
/// the device.
fn cache_bytes(config: &Config, cache: &Cache, profile: &Profile) -> Result<u64> {
    let mut bytes: u128 = 0;
    let limit = profile.binding_bytes_max;
    for layer in config.caches() {
        let row = cache.dtype.bytes(layer.kv_dim().into()).unwrap_or(u64::MAX);
        let rows = u64::from(cache.pages.of(layer.window).pool) * u64::from(PAGE);
        if rows > u64::from(u32::MAX) {
            bail!(
                TooLarge,
                "KV cache for {} has {rows} rows, over the limit of {}",
                describe(cache),
                u32::MAX
            );
        }
        let layer_bytes = u128::from(rows) * u128::from(row);
        let caches = layer.cache_width() / layer.kv_dim();
        if layer_bytes > u128::from(limit) {
            bail!(
                TooLarge,
                "the keys of a layer for {} need {} MB, the binding limit of the device is {} MB; {}",
                describe(cache),
                layer_bytes >> 20,
                limit >> 20,
                suggest_size(cache, layer_bytes, limit)
            );
        }
        bytes += u128::from(caches) * layer_bytes;
    }
    bytes += states_bytes(config, cache, profile)?;
    let free = cache.free;
    if bytes > u128::from(free) {
        bail!(
            Memory,
            "KV cache for {} needs {} MB, {} MB are free; {}",
            describe(cache),
            bytes >> 20,
            free >> 20,
            suggest_size(cache, bytes, free)
        );
    }
    u64::try_from(bytes).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            format_args!("KV cache for {} is too large", describe(cache)),
        )
    })
}

/// Returns the bytes of all states, checked against the binding limit of the device.
fn states_bytes(config: &Config, cache: &Cache, profile: &Profile) -> Result<u128> {
    let (states, limit) = (
        u128::from(cache.pages.states_pool),
        profile.binding_bytes_max,
    );
    let largest = config.recurrent.map_or(0, |recurrent| {
        recurrent.state_bytes().into_iter().max().unwrap_or(0)
    });
    let layer_bytes = states * u128::from(largest);
    if layer_bytes > u128::from(limit) {
        bail!(
            TooLarge,
            "{states} states of a recurrent layer for {} need {} MB, the binding limit of the device is {} MB",
            describe(cache),
            layer_bytes >> 20,
            limit >> 20
        );
    }
    Ok(states * u128::from(state_bytes(config)))
}

/// Describes the size of a cache in a message.
fn describe(cache: &Cache) -> String {
    match (cache.sequences, cache.beams) {
        (1, 1) => format!("{} positions", cache.context),
        (n, 1) => format!("{n} sequences of {} positions", cache.context),
        (1, _) => "a recording".to_string(),
        (n, _) => format!("{n} recordings at once"),
    }
}

/// Suggests a size that fits into `free` bytes.
fn suggest_size(cache: &Cache, bytes: u128, free: u64) -> String {
    let count = u128::from(free) * u128::from(cache.sequences) / bytes;
    match (count, cache.beams) {
        (0, 1) => "a smaller context would fit".to_string(),
        (1, 1) => "1 sequence would fit".to_string(),
        (n, 1) => format!("{n} sequences would fit"),
        (0, _) => "a smaller model would fit".to_string(),
        (1, _) => "1 recording would fit".to_string(),
        (n, _) => format!("{n} recordings would fit"),
    }
}

/// Returns the preferred number of tokens of a prefill chunk.
fn preferred_chunk(options: &LoadOptions, context: u32, profile: &Profile) -> u32 {
    let tokens = match options.chunk_tokens {
        0 => profile.chunk_tokens,
        n => n,
    };
    // At least two: one token would run as gemv, whose sums may have another order.
    tokens.min(context).max(2)
}

/// Returns the tokens of a prefill chunk: the preferred number, or fewer if memory is short. An
/// encoder processes a text in one chunk.
pub fn chunk(
    arch: &Arch,
    config: &Config,
    options: &LoadOptions,
    cache: &Cache,
    profile: &Profile,
) -> Result<u32> {
    // Largest set of live activations in a layer: residual, norm, gate, up and their product, or as many of a mixer.
    let experts = u64::from(config.experts.width) * u64::from(config.experts.router.k)
        + u64::from(config.experts.shared_width);
    let layers = u64::from(config.layer_embeddings.width) * u64::from(config.layers);
    let mixer = config.recurrent.map_or(0, |recurrent| recurrent.channels());
    let widest = config.ffn.width.max(config.q_dim()).max(mixer);
    let width = 2 * u64::from(config.dim) + 3 * u64::from(widest);
    let logits = if arch.encoder {
        0
    } else {
        u64::from(config.vocab)
    };
    let token_bytes = (width + 3 * (experts + layers) + logits) * 4;
    let free = cache.free.saturating_sub(cache.bytes);
    let fitting = free / 2 / token_bytes;
    let least = if arch.encoder {
        cache.context.max(2)
    } else {
        2
    };
    if fitting < u64::from(least) {
        bail!(
            Memory,
            "scratch memory for {least} tokens of {token_bytes} bytes does not fit; {free} bytes \
             are free"
        );
    }
    let preferred = if arch.encoder {
        profile.chunk_tokens.max(least)
    } else {
        preferred_chunk(options, cache.context, profile)
    };
    Ok(u32::try_from(fitting).map_or(preferred, |fitting| preferred.min(fitting)))
}

/// Returns the maximum number of bytes of packed weights of a program that needs this memory if all of
/// its weights are packed.
pub(super) fn packed_bytes(weights: WeightMemory, all: MemoryUsage) -> Result<u64> {
    let free = host_free_bytes();
    let usable = free - free / 8;
    let fitting = usable.saturating_sub(all.buffers);
    match weights {
        WeightMemory::Mapped => Ok(0),
        WeightMemory::Auto => Ok(fitting),
        WeightMemory::Packed if all.packed <= fitting => Ok(all.packed),
        WeightMemory::Packed => bail!(
            Memory,
            "packed weights and buffers need {} MB, {} of {} MB of free memory may be used; use mapped weights",
            (all.packed + all.buffers) >> 20,
            usable >> 20,
            free >> 20
        ),
    }
}

/// Returns the free memory of the device. Unknown on a GPU, where the allocation is the check.
fn free_bytes(profile: &Profile) -> u64 {
    match profile.kind {
        DeviceKind::Gpu => u64::MAX,
        DeviceKind::Cpu => host_free_bytes(),
    }
}

/// Checks that copies of weights that are used in place fit into memory.
///
/// # Errors
///
/// `Memory` if not.
pub(super) fn check_copies(bytes: u64) -> Result<()> {
    let free = host_free_bytes();
    if bytes > free - free / 8 {
        bail!(
            Memory,
            "copies of weights that are not packed need {} MB, {} MB are free; use load mode mmap",
            bytes >> 20,
            free >> 20
        );
    }
    Ok(())
}

/// Reserves host memory for a tensor that is converted to another type.
///
/// # Errors
///
/// `Memory` if the bytes do not fit into free memory.
pub(super) fn reserve(tensor: &str, to: DType, bytes: u64) -> Result<Vec<u8>> {
    let free = host_free_bytes();
    let mut reserved = Vec::new();
    let fits = usize::try_from(bytes).ok().filter(|_| bytes <= free);
    if fits.is_some_and(|bytes| reserved.try_reserve_exact(bytes).is_ok()) {
        return Ok(reserved);
    }
    bail!(
        Memory,
        "tensor {tensor} as {to} needs {bytes} bytes, {free} are free"
    );
}
