//! Files generated from `options/`, the lists of options.

mod arguments;
mod c;
mod fields;
mod page;
mod python;
mod rust;
mod schema;
mod server;
mod swift;
mod text;

use crate::tree::Generated;
use schema::LISTS;

/// Returns the files that are generated from the lists.
pub(crate) fn files() -> Vec<Generated> {
    let c = LISTS.iter().map(|list| {
        let path = format!("crates/capi/src/options/{list}.rs");
        Generated::new(path, || c::options(list))
    });
    let others = [
        // First, because it checks the fields of sampling parameters.
        Generated::new("crates/core/src/exec/sampler_off.rs", rust::sampler_off),
        Generated::new("src/decode/sampling_options.rs", rust::sampling),
        Generated::new("crates/load/src/option_fields.rs", || {
            fields::exported_fields("load")
        }),
        Generated::new("src/decode/generate_fields.rs", || {
            fields::fields("generate")
        }),
        Generated::new("src/decode/speech/option_fields.rs", || {
            fields::fields("transcribe")
        }),
        Generated::new("crates/capi/src/options/mod.rs", || Ok(c::modules())),
        Generated::new("cli/src/args/load_options.rs", || {
            arguments::arguments("load")
        }),
        Generated::new("cli/src/commands/transcribe/decoding_options.rs", || {
            arguments::arguments("transcribe")
        }),
        Generated::new("cli/src/args/sampling_options.rs", arguments::sampling),
        Generated::new(
            "crates/server/src/engine/sampling_fields.rs",
            server::fields,
        ),
        Generated::new("crates/server/tests/it/request_names.rs", server::names),
        Generated::new("bindings/python/tabla/_option_types.py", python::options),
        Generated::new("bindings/swift/Sources/Tabla/Options.swift", swift::options),
        Generated::new(page::PATH, page::page),
    ];
    others.into_iter().chain(c).collect()
}
