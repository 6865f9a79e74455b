//! Files generated from `options/`, the lists of options.

mod c;
mod cli;
mod page;
mod python;
mod rust;
mod schema;
mod server;
mod swift;
mod text;

use crate::tree::Generated;

/// Files that are generated from the list.
pub(crate) const FILES: &[Generated] = &[
    Generated {
        path: "crates/core/src/exec/sampler_off.rs",
        text: rust::sampler_off,
    },
    Generated {
        path: "src/decode/sampling_options.rs",
        text: rust::sampling,
    },
    Generated {
        path: "crates/capi/src/options/chat.rs",
        text: || c::options("chat"),
    },
    Generated {
        path: "crates/capi/src/options/classify.rs",
        text: || c::options("classify"),
    },
    Generated {
        path: "crates/capi/src/options/embed.rs",
        text: || c::options("embed"),
    },
    Generated {
        path: "crates/capi/src/options/generate.rs",
        text: || c::options("generate"),
    },
    Generated {
        path: "crates/capi/src/options/load.rs",
        text: || c::options("load"),
    },
    Generated {
        path: "crates/capi/src/options/transcribe.rs",
        text: || c::options("transcribe"),
    },
    Generated {
        path: "cli/src/args/sampling_options.rs",
        text: cli::options,
    },
    Generated {
        path: "crates/server/src/engine/sampling_fields.rs",
        text: server::fields,
    },
    Generated {
        path: "bindings/python/tabla/_option_types.py",
        text: python::options,
    },
    Generated {
        path: "bindings/swift/Sources/Tabla/Options.swift",
        text: swift::options,
    },
    Generated {
        path: page::PATH,
        text: page::page,
    },
];
