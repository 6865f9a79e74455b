//! Compiled models: GGUF files with the tables, the weights in the layouts of devices, and the tokenizer as flat
//! arrays (docs/compiled.md).

mod cache;
mod check;
mod header;
mod stored_tables;
#[cfg(test)]
mod table_tests;
mod tables;
mod write;

pub(crate) use cache::open_cached;
pub use cache::{CACHE_BYTES_MAX, CachedModel, cached_models};
pub(crate) use check::of_file;
pub use header::{Header, SectionSize, check_digests, section_sizes, target};
pub(crate) use stored_tables::read as read_tables;
pub use stored_tables::tables as tables_of;
pub use write::{CompileReport, compile_model};

/// Version of the format. Files of another version are not read.
pub const VERSION: u32 = 1;

/// Keys of compiled models.
mod keys {
    pub(super) const VERSION: &str = "tabla.compiled.version";
    pub(super) const BUILD: &str = "tabla.compiled.build";
    pub(super) const LAYOUTS: &str = "tabla.compiled.layouts";
    pub(super) const PRECISION: &str = "tabla.compiled.precision";
    pub(super) const DRAFTING: &str = "tabla.compiled.drafting_head";
    pub(super) const MERGED: &str = "tabla.compiled.merged_adapters";
    pub(super) const LM_HEAD: &str = "tabla.compiled.lm_head_type";
    pub(super) const I2S_LAYOUT: &str = "tabla.compiled.i2s_layout";
    pub(super) const PERMUTED: &str = "tabla.compiled.permuted_heads";
    pub(super) const SOURCE: &str = "tabla.compiled.source.name";
    pub(super) const SOURCE_BYTES: &str = "tabla.compiled.source.bytes";
    pub(super) const SOURCE_DIGEST: &str = "tabla.compiled.source.digest";
    pub(crate) const ALIGNMENT_HEADS: &str = "tabla.compiled.alignment_heads";
}
pub(crate) use keys::ALIGNMENT_HEADS;

/// Tensor with the digest of all bytes before the data of the first tensor, which it is.
const DIGEST: &str = "tabla.digest";
/// Tensor with the digests of all tensors before it, in order.
const DIGESTS: &str = "tabla.digests";
/// Bytes of a digest (BLAKE3).
const DIGEST_BYTES: usize = 32;

/// Alignment of the tensors in bytes: a cache line.
const ALIGNMENT: u32 = 64;

/// Returns the version of this build, which also reads only files of the same version: kernels, and with them the
/// layout of weights, may change.
fn build() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}
