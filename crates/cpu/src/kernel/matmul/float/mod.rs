//! Products of float weights.
//!
//! `products.rs` reads the rows of F32, F16 and BF16 weights in file order with vectors of any level; `bf16.rs` uses
//! the products of pairs of AVX-512 BF16. With AMX, `amx.rs` multiplies tiles in file order and `panels.rs` tiles that
//! were packed:
//!
//! ```text
//! packed BF16:  | 32 columns of 16 rows: one tile | the next 32 columns | ...   then the next 16 rows
//! ```

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod bf16;
#[cfg(target_arch = "x86_64")]
pub(crate) mod panels;
pub(crate) mod products;
