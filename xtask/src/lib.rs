//! Generated files and developer tools of `cargo xtask`.

mod affected;
mod dependencies;
mod exhaustive;
mod generated;
mod gpu_lab;
mod gpu_stats;
mod header;
mod header_groups;
mod install;
mod lock;
mod modules;
mod operations;
mod options;
mod packages;
mod program;
mod reproducible;
mod sanitize;
mod sbom;
mod size;
mod tree;

pub use affected::affected;
pub use exhaustive::exhaustive;
pub use generated::{bless, generated, header};
pub use gpu_lab::gpu_lab;
pub use gpu_stats::gpu_stats;
pub use install::{install, install_from};
pub use program::{install_program, man};
pub use reproducible::reproducible;
pub use sanitize::sanitize;
pub use sbom::sbom;
pub use size::size;
pub use tree::{Generated, Result, root};
