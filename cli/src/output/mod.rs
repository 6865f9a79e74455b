//! Output of the commands: the two streams, errors, warnings and files.

pub(crate) mod answer;
pub(crate) mod cache_folders;
mod failure;
pub(crate) mod npy;
pub(crate) mod report;
pub(crate) mod terminal;
pub(crate) mod warnings;
pub(crate) mod wrap;

pub(crate) use failure::Failure;
