#[path = "it/common.rs"]
mod common;
#[path = "it/cross_encoder.rs"]
mod cross_encoder;
#[path = "it/embeddings.rs"]
mod embeddings;
#[path = "it/npy.rs"]
mod npy;
#[path = "it/rerank.rs"]
mod rerank;
#[path = "it/temp_folder.rs"]
mod temp_folder;
#[path = "it/arch_errors.rs"]
mod arch_errors;
