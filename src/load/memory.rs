//! Memory: how many positions and how many tokens a pass, held against what is free.

use super::options::{CONTEXT_DEFAULT, LoadOptions, SEQUENCES_MAX, WeightMemory};
use crate::arch::{Arch, Config};
use crate::device::{DeviceKind, Precision, Profile};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::model::{SCORE_TOKENS, STEP_ROWS_MAX};
use crate::op::pages::{PAGE, Pages};

/// The KV cache of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) sequences: u32,
    /// Positions of each.
    pub(super) context: u32,
    pub(super) dtype: DType,
    pub(super) pages: Pages,
    pub(super) bytes: u64,
}

/// Positions at most, whatever is asked for: products with head counts stay inside 64 bits.
const CONTEXT_MAX: u32 = 1 << 27;

/// The storage types of [`LoadOptions::cache_type`].
pub const CACHE_TYPES: [DType; 3] = [DType::F16, DType::F32, DType::Q8_0];

/// Heads of a cache in `Q8_0` are of a multiple of so many elements.
const CODED_HEAD: u32 = 64;

/// Rows of the tables for steps: so few that no more than half of a table is idle, whatever number of
/// sequences goes on together, and some for tokens of one sequence, which are scored or guessed.
pub(super) fn step_rows(sequences: u32) -> impl Iterator<Item = u32> {
    let widest = sequences.next_power_of_two().min(STEP_ROWS_MAX);
    let rows = std::iter::successors(Some(1), |rows| Some(2 * rows));
    let rows = rows.take_while(move |rows| *rows <= widest);
    rows.chain((widest < SCORE_TOKENS).then_some(SCORE_TOKENS))
}

/// Chooses the positions and the storage of the KV cache.
pub(super) fn cache(
    arch: &Arch,
    config: &Config,
    options: &LoadOptions,
    profile: &Profile,
) -> Result<Cache> {
    let context = match options.context {
        0 => config.context.min(CONTEXT_DEFAULT),
        n if n > CONTEXT_MAX => bail!(TooLarge, "a context of {n} is over {CONTEXT_MAX}"),
        // Where positions are embeddings there is none for those that were not trained, and an
        // encoder knows no others either.
        n if arch.encoder || config.blocks.iter().all(|b| b.rope.is_none()) => {
            n.min(config.context)
        }
        n => n,
    };
    if context > config.context {
        tracing::warn!(
            "a context of {context} positions is over the {} that the model was trained for, or that its \
             attention reaches",
            config.context
        );
    }
    let dtype = match (options.cache_type, options.precision) {
        (Some(dtype), _) => dtype,
        (None, Precision::Fast) => DType::F16,
        (None, Precision::Exact) => DType::F32,
    };
    let sequences = match options.sequences {
        n if n > SEQUENCES_MAX => bail!(TooLarge, "{n} sequences are over {SEQUENCES_MAX}"),
        n => n.max(1),
    };
    let windows: Vec<u32> = config.blocks.iter().map(|block| block.window).collect();
    // Tokens of the widest table, or more where memory will be short for it.
    let rows = wish(options, context, profile).max(STEP_ROWS_MAX);
    let mut cache = Cache {
        sequences,
        context,
        dtype,
        pages: Pages::new(sequences, context, &windows, rows),
        bytes: 0,
    };
    if let Some(bytes) = options.prefix_bytes.filter(|_| !arch.encoder) {
        let kept = bytes / page_bytes(config, dtype).max(1);
        cache.pages = cache.pages.keeping(u32::try_from(kept).unwrap_or(u32::MAX));
    }
    if !arch.encoder {
        check_type(dtype, config)?;
        cache.bytes = cache_bytes(config, &cache, profile)?;
    }
    Ok(cache)
}

/// Checks that a cache can be stored so. Scales of [`DType::Q8_0`] lie behind all codes of a row, and
/// those of a head are whole words.
fn check_type(dtype: DType, config: &Config) -> Result<()> {
    if !CACHE_TYPES.contains(&dtype) {
        let known = CACHE_TYPES.map(DType::name).join(", ");
        bail!(
            Argument,
            "a KV cache cannot be {dtype}, known types are {known}"
        );
    }
    let mut heads = config.blocks.iter().map(|block| block.head_dim);
    match heads.find(|head| !head.is_multiple_of(CODED_HEAD)) {
        Some(head) if dtype == DType::Q8_0 => bail!(
            Unsupported,
            "a KV cache in {dtype} wants heads of a multiple of {CODED_HEAD} elements, not of {head}"
        ),
        _ => Ok(()),
    }
}

/// Bytes of a page of every layer.
fn page_bytes(config: &Config, dtype: DType) -> u64 {
    let layers = (0..).zip(&config.blocks);
    let own = layers.filter(|(layer, block)| block.cache == *layer);
    let rows = own.map(|(_, block)| dtype.bytes(block.kv_dim().into()).unwrap_or(0));
    rows.map(|row| 2 * u64::from(PAGE) * row).sum()
}

/// Bytes of all keys and values, held against what is free and what the device binds at once.
fn cache_bytes(config: &Config, cache: &Cache, profile: &Profile) -> Result<u64> {
    let mut bytes: u128 = 0;
    for (layer, block) in (0..).zip(&config.blocks) {
        if block.cache != layer {
            continue;
        }
        let row = cache.dtype.bytes(block.kv_dim().into()).unwrap_or(u64::MAX);
        let rows = u64::from(cache.pages.of(block.window).pool) * u64::from(PAGE);
        if rows > u64::from(u32::MAX) {
            bail!(
                TooLarge,
                "a KV cache for {} has {rows} rows, {} are the most",
                of(cache),
                u32::MAX
            );
        }
        let layer_bytes = u128::from(rows) * u128::from(row);
        let most = profile.binding_bytes_max;
        if layer_bytes > u128::from(most) {
            bail!(
                TooLarge,
                "the keys of a layer for {} take {} MB, the device binds {} MB; {}",
                of(cache),
                layer_bytes >> 20,
                most >> 20,
                would_fit(cache, layer_bytes, most)
            );
        }
        bytes += 2 * layer_bytes;
    }
    let free = free_bytes(profile);
    if bytes > u128::from(free) {
        bail!(
            Memory,
            "a KV cache for {} takes {} MB, {} MB are free; {}",
            of(cache),
            bytes >> 20,
            free >> 20,
            would_fit(cache, bytes, free)
        );
    }
    u64::try_from(bytes).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            format_args!("a KV cache for {}", of(cache)),
        )
    })
}

/// What a cache is for, in words.
fn of(cache: &Cache) -> String {
    match cache.sequences {
        1 => format!("{} positions", cache.context),
        n => format!("{n} sequences of {} positions", cache.context),
    }
}

/// What would fit where so many bytes do not.
fn would_fit(cache: &Cache, bytes: u128, free: u64) -> String {
    match u128::from(free) * u128::from(cache.sequences) / bytes {
        0 => "a smaller context would fit".to_string(),
        1 => "1 sequence would fit".to_string(),
        n => format!("{n} sequences would fit"),
    }
}

/// Tokens of a prefill chunk that are wished for.
fn wish(options: &LoadOptions, context: u32, profile: &Profile) -> u32 {
    let wish = match options.chunk_tokens {
        0 => profile.chunk_tokens,
        n => n,
    };
    // At least two: one token would be a mat-vec, whose sums may have another order.
    wish.min(context).max(2)
}

/// Tokens of a prefill chunk: the device's wish, or fewer where memory is short. A text of an
/// encoder goes through in one piece.
pub(super) fn chunk(
    arch: &Arch,
    config: &Config,
    options: &LoadOptions,
    cache: &Cache,
    profile: &Profile,
) -> Result<u32> {
    // The widest moment of a block: residual, norm, gate, up and their product.
    let experts = u64::from(config.expert_ffn) * u64::from(config.experts_used);
    let layers = u64::from(config.layer_embedding) * u64::from(config.layers);
    let width = 2 * u64::from(config.dim) + 3 * u64::from(config.ffn.max(config.q_dim()));
    let outside = if arch.encoder {
        0
    } else {
        u64::from(config.vocab)
    };
    let token_bytes = (width + 3 * (experts + layers) + outside) * 4;
    let free = free_bytes(profile).saturating_sub(cache.bytes);
    let fitting = free / 2 / token_bytes;
    let least = if arch.encoder {
        cache.context.max(2)
    } else {
        2
    };
    if fitting < u64::from(least) {
        bail!(
            Memory,
            "working memory for {least} tokens of {token_bytes} bytes, {free} bytes are free"
        );
    }
    let wish = if arch.encoder {
        profile.chunk_tokens.max(least)
    } else {
        wish(options, cache.context, profile)
    };
    Ok(u32::try_from(fitting).map_or(wish, |fitting| wish.min(fitting)))
}

/// Whether weights are packed, which takes these bytes for copies of them.
pub(super) fn pack(weights: WeightMemory, bytes: u64) -> Result<bool> {
    let free = host_free_bytes();
    let fits = bytes <= free - free / 8;
    match weights {
        WeightMemory::Auto => Ok(fits),
        WeightMemory::Mapped => Ok(false),
        WeightMemory::Packed if fits => Ok(true),
        WeightMemory::Packed => bail!(
            Memory,
            "packed weights take {} MB, {} MB are free; mapped ones would take none",
            bytes >> 20,
            free >> 20
        ),
    }
}

/// Bytes that could be had now. A GPU does not tell; its own allocation is the check there.
fn free_bytes(profile: &Profile) -> u64 {
    match profile.kind {
        DeviceKind::Gpu => u64::MAX,
        DeviceKind::Cpu => host_free_bytes(),
    }
}

/// Bytes that the host has to give, where it tells.
pub(super) fn host_free_bytes() -> u64 {
    meminfo_available().unwrap_or(u64::MAX)
}

/// `MemAvailable` of Linux; `None` elsewhere.
fn meminfo_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
