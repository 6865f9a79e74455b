//! Memory: how many positions and how many tokens a pass, held against what is free.

use super::{CONTEXT_DEFAULT, Options};
use crate::arch::Config;
use crate::device::{DeviceKind, Precision, Profile};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};

/// The KV cache of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) context: u32,
    pub(super) dtype: DType,
    pub(super) bytes: u64,
}

/// Positions at most, whatever is asked for: products with head counts stay inside 64 bits.
const CONTEXT_MAX: u32 = 1 << 27;

/// Chooses the positions and the storage of the KV cache.
pub(super) fn cache(config: &Config, options: &Options, profile: &Profile) -> Result<Cache> {
    let context = match options.context {
        0 => config.context.min(CONTEXT_DEFAULT),
        n if n > CONTEXT_MAX => bail!(TooLarge, "a context of {n} is over {CONTEXT_MAX}"),
        n => n,
    };
    if context > config.context {
        tracing::warn!(
            context,
            trained = config.context,
            "context over what was trained"
        );
    }
    let dtype = match options.precision {
        Precision::Fast => DType::F16,
        Precision::Exact => DType::F32,
    };
    let row = dtype.bytes(u64::from(config.kv_dim())).unwrap_or(u64::MAX);
    let bytes = u128::from(row) * u128::from(context) * 2 * u128::from(config.layers);
    let free = free_bytes(profile);
    if bytes > u128::from(free) {
        bail!(
            Memory,
            "a KV cache for {context} positions takes {} MB, {} MB are free; \
             a smaller context would fit",
            bytes >> 20,
            free >> 20
        );
    }
    let layer_bytes = u128::from(row) * u128::from(context);
    if layer_bytes > u128::from(profile.binding_bytes_max) {
        bail!(
            TooLarge,
            "the keys of a layer for {context} positions take {} MB, the device binds {} MB; \
             a smaller context would fit",
            layer_bytes >> 20,
            profile.binding_bytes_max >> 20
        );
    }
    let bytes = u64::try_from(bytes).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            format_args!("a KV cache for {context} positions"),
        )
    })?;
    Ok(Cache {
        context,
        dtype,
        bytes,
    })
}

/// Tokens of a prefill chunk: the device's wish, or fewer where memory is short.
pub(super) fn chunk(
    config: &Config,
    options: &Options,
    cache: &Cache,
    profile: &Profile,
) -> Result<u32> {
    // The widest moment of a block: residual, norm, gate, up and their product.
    let width = 2 * u64::from(config.dim)
        + 3 * u64::from(config.ffn.max(config.q_dim()))
        + u64::from(config.vocab);
    let token_bytes = width * 4;
    let free = free_bytes(profile).saturating_sub(cache.bytes);
    let fitting = free / 2 / token_bytes;
    if fitting < 2 {
        bail!(
            Memory,
            "working memory of {token_bytes} bytes a token, {free} bytes are free"
        );
    }
    let wish = if options.chunk_tokens == 0 {
        profile.chunk_tokens
    } else {
        options.chunk_tokens
    };
    // At least two: one token would be a mat-vec, whose sums may have another order.
    let wish = wish.min(cache.context).max(2);
    Ok(u32::try_from(fitting).map_or(wish, |fitting| wish.min(fitting)))
}

/// Bytes that could be had now. A GPU does not tell; its own allocation is the check there.
fn free_bytes(profile: &Profile) -> u64 {
    match profile.kind {
        DeviceKind::Gpu => u64::MAX,
        DeviceKind::Cpu => meminfo_available().unwrap_or(u64::MAX),
    }
}

/// `MemAvailable` of Linux; `None` elsewhere.
fn meminfo_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
