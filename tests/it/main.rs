//! The integration tests: one binary, so that the library is linked once.

mod arch_errors;
mod archs;
mod batch;
mod bf16;
mod bitnet;
mod blocks;
mod calls;
mod chat;
mod checkpoints;
mod common;
mod company;
mod embeddings;
mod fill;
mod formats;
mod formulas;
#[cfg(feature = "gpu")]
mod gpu;
mod grammar;
mod head;
mod kernels;
mod npy;
mod pages;
mod parity;
mod real;
mod rerank;
mod sampling;
mod score;
mod scratch;
mod sessions;
mod shift;
mod speculate;
mod tables;
mod ternary;
mod tokenizer;
mod tune;
mod types;
