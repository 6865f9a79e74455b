//! Matrix products: `gemv`, `gemm` and the operations that add to the output (`gemm.rs`).
//!
//! `gemm.rs` selects a folder by the storage type of the weights:
//!
//! | weights | activations | folder |
//! |---|---|---|
//! | quantized blocks and codes | int8, quantized once per row | `quantized/` |
//! | floats | f32, or bf16 with AVX-512 BF16 and AMX | `float/` |
//! | ternary digits (`bit_mat`, an operation of its own) | int8 from `bit_quantize` | `ternary/` |
//! | any type, exact precision or the scalar level | f32 or int8 | `any_type.rs`, by chunks of a row |
//!
//! Threads share the rows of weights. A unit of work is a group of rows (`row_groups.rs`):
//!
//! ```text
//!            columns of x, in order
//!          +------------------------+
//! rows of  | group of rows: thread 0|      y[t, r] = one chain of sums along the columns,
//! W        | group of rows: thread 1|      whatever the group, the number of tokens and of threads
//!          | ...                    |
//!          +------------------------+
//! ```

pub(crate) mod any_type;
pub(crate) mod float;
pub(crate) mod gemm;
pub(crate) mod output;
pub(crate) mod quantized;
pub(crate) mod row_groups;
pub(crate) mod ternary;
