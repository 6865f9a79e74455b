//! Validates every kernel and reflects what Rust has to know of them.
//!
//! A shader that naga refuses is a panic with naga's own message and line. What is reflected
//! (parameters, step state, tiles, which kernels there are) is written nowhere else.

use crate::source::{Form, Which, expand, forms, variants};
use crate::{SOURCES, source};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Expression, Literal, Module, ScalarKind, StorageAccess, TypeInner};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The file that is written, below the root of the tree.
pub const PATH: &str = "crates/core/src/op/params.rs";

/// Structs that several shaders share.
const SHARED: [&str; 5] = ["Bias", "LogProbs", "Row", "Sampler", "State"];

const HEAD: &str = "\
//! Parameters of kernels, the step state, and which kernels there are, as the shaders declare them.
//! Written by `cargo reflect` from shaders/: change it there.

use super::kernel_row::Kernels;
use super::list::Op;
use bytemuck::{Pod, Zeroable};
";

/// A kernel as its text declares it.
#[derive(Debug)]
pub struct Reflected {
    /// Its name, as in listings.
    pub name: String,
    /// Its operation.
    pub stem: String,
    /// Its storage type.
    pub variant: Option<String>,
    /// Its form.
    pub form: Option<String>,
    /// Name of each storage buffer, and whether the kernel writes it.
    pub bindings: Vec<(String, bool)>,
    units: u32,
    tokens: u32,
    module: Module,
}

/// Expands, validates and reflects every kernel, in the order of operations by name, then of
/// storage types, then of forms.
///
/// # Panics
///
/// Where a shader is not valid, with what is wrong.
pub fn kernels() -> Vec<Reflected> {
    let variants = variants(source("variants").expect("it is embedded"));
    let forms = forms(source("forms").expect("it is embedded"));
    let stems = SOURCES
        .iter()
        .filter_map(|(name, _)| name.strip_suffix(".wgsl"))
        .filter(|name| !name.contains('/'));
    let mut all = Vec::new();
    for stem in stems {
        let of_stem = variants.get(stem).cloned().unwrap_or_else(|| vec![None]);
        for variant in of_stem.iter().map(Option::as_deref) {
            let kernels = of_variant(stem, variant, &variants, &forms);
            all.extend(kernels.map(reflected));
        }
    }
    all
}

fn reflected(which: Which<'_>) -> Reflected {
    let name = which.name();
    let text = expand(which, &|file| source(file).map(str::to_string))
        .unwrap_or_else(|e| panic!("shaders: {name}: {e}"));
    let module = validate(&name, &text);
    let owned = |part: Option<&str>| part.map(str::to_string);
    Reflected {
        stem: which.stem.to_string(),
        variant: owned(which.variant),
        form: owned(which.form),
        bindings: bindings(&name, &module),
        units: constant(&module, "UNITS")
            .unwrap_or_else(|| panic!("{name}: const UNITS is missing")),
        tokens: constant(&module, "TOKENS").unwrap_or(1),
        name,
        module,
    }
}

/// The text of [`PATH`].
///
/// # Panics
///
/// As [`kernels`], and where the kernels of an operation have different parameters.
pub fn params() -> String {
    let kernels = kernels();
    let page = kernels
        .iter()
        .find_map(|kernel| constant(&kernel.module, "PAGE"));
    let page = page.expect("shaders that read the cache have const PAGE");
    let mut text = format!(
        "{HEAD}\n/// Positions of a page of the KV cache.\npub const PAGE: u32 = {page};\n"
    );
    for name in SHARED {
        let mut modules = kernels.iter().map(|kernel| &kernel.module);
        let found = modules.find_map(|module| struct_of(module, name));
        text.push_str(&found.unwrap_or_else(|| panic!("no shader has struct {name}")));
    }
    for of_stem in kernels.chunk_by(|a, b| a.stem == b.stem) {
        let first = &of_stem[0];
        let params = params_of(&first.module);
        for kernel in of_stem {
            let own = params_of(&kernel.module);
            assert!(own == params, "{}: Params vary", kernel.name);
        }
        write!(
            text,
            "/// Of `{0}`.\npub mod {0} {{\n    use bytemuck::{{Pod, Zeroable}};\n{params}}}\n",
            first.stem
        )
        .expect("a String takes it");
    }
    text.push_str(&rows(&kernels));
    text
}

/// The rows of `KERNELS`, and the bytes of each operation's parameters.
fn rows(kernels: &[Reflected]) -> String {
    let forms = forms(source("forms").expect("it is embedded"));
    let rank = |form: &Option<String>| forms.iter().position(|f| Some(&f.name) == form.as_ref());
    let mut lists: Vec<Vec<&str>> = Vec::new();
    let mut rows = String::new();
    for of_stem in kernels.chunk_by(|a, b| a.stem == b.stem) {
        // Kernels of one form and tile.
        let mut groups: Vec<(&Reflected, Vec<&str>)> = Vec::new();
        for kernel in of_stem {
            let key = (&kernel.form, kernel.units, kernel.tokens);
            let at = groups
                .iter()
                .position(|(k, _)| (&k.form, k.units, k.tokens) == key);
            let at = at.unwrap_or_else(|| {
                groups.push((kernel, Vec::new()));
                groups.len() - 1
            });
            groups[at].1.extend(kernel.variant.as_deref());
        }
        groups.sort_by_key(|(kernel, _)| rank(&kernel.form));
        for (kernel, variants) in groups {
            let list = lists.iter().position(|list| *list == variants);
            let list = list.unwrap_or_else(|| {
                lists.push(variants);
                lists.len() - 1
            });
            writeln!(
                rows,
                "    Kernels {{ op: Op::{}, form: {:?}, variants: TYPES_{list}, units: {}, tokens: {} }},",
                camel(&kernel.stem), kernel.form, kernel.units, kernel.tokens
            )
            .expect("a String takes it");
        }
    }
    let mut text = String::from("/// Every kernel; of one operation the better forms come last.\n");
    writeln!(text, "pub static KERNELS: &[Kernels] = &[\n{rows}];").expect("a String takes it");
    for (i, list) in lists.iter().enumerate() {
        writeln!(text, "const TYPES_{i}: &[&str] = &{list:?};").expect("a String takes it");
    }
    text.push_str("/// Bytes of the parameters of an operation.\n");
    text.push_str("pub fn bytes(op: Op) -> usize {\n    match op {\n");
    for of_stem in kernels.chunk_by(|a, b| a.stem == b.stem) {
        let stem = &of_stem[0].stem;
        let op = camel(stem);
        writeln!(text, "        Op::{op} => size_of::<{stem}::Params>(),")
            .expect("a String takes it");
    }
    text.push_str("    }\n}\n");
    text
}

/// `RmsNorm` for `rms_norm`.
fn camel(stem: &str) -> String {
    let upper = |word: &str| word[..1].to_uppercase() + &word[1..];
    stem.split('_').map(upper).collect()
}

/// The plain kernel of a stem for a storage type, then its forms.
fn of_variant<'a>(
    stem: &'a str,
    variant: Option<&'a str>,
    variants: &'a BTreeMap<String, Vec<Option<String>>>,
    forms: &'a [Form],
) -> impl Iterator<Item = Which<'a>> {
    let listed = move |list: &String| variants[list].iter().any(|v| v.as_deref() == variant);
    let has = move |form: &&Form| {
        form.stems.iter().any(|s| s == stem) && form.list.as_ref().is_none_or(listed)
    };
    let names = forms
        .iter()
        .filter(has)
        .map(|form| Some(form.name.as_str()));
    std::iter::once(None).chain(names).map(move |form| Which {
        stem,
        variant,
        form,
    })
}

fn validate(name: &str, text: &str) -> Module {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|e| panic!("shaders: {name}: {}", e.emit_to_string(text)));
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|e| panic!("shaders: {name}: {}", e.emit_to_string(text)));
    module
}

/// The storage buffers in the order of their bindings.
fn bindings(name: &str, module: &Module) -> Vec<(String, bool)> {
    let mut bindings: Vec<_> = module
        .global_variables
        .iter()
        .filter_map(|(_, v)| match (v.space, &v.binding) {
            (AddressSpace::Storage { access }, Some(b)) => Some((
                b.binding,
                v.name.clone()?,
                access.contains(StorageAccess::STORE),
            )),
            _ => None,
        })
        .collect();
    bindings.sort();
    for (i, (binding, name_of, _)) in bindings.iter().enumerate() {
        assert!(
            *binding as usize == i,
            "{name}: {name_of}: bindings must count from 0 without holes"
        );
    }
    bindings
        .into_iter()
        .map(|(_, name, writable)| (name, writable))
        .collect()
}

/// A `const NAME = 4u;` of the shader.
fn constant(module: &Module, name: &str) -> Option<u32> {
    module
        .constants
        .iter()
        .find(|(_, c)| c.name.as_deref() == Some(name))
        .and_then(|(_, c)| match module.global_expressions[c.init] {
            Expression::Literal(Literal::U32(v)) => Some(v),
            _ => None,
        })
}

/// The type of the `var<immediate>`, as a Rust struct named `Params`.
fn params_of(module: &Module) -> String {
    let name = params_type(module)
        .name
        .as_deref()
        .expect("a struct has a name");
    struct_of(module, name).expect("params is a struct")
}

fn params_type(module: &Module) -> &naga::Type {
    let mut globals = module.global_variables.iter();
    let params = globals.find(|(_, v)| v.space == AddressSpace::Immediate);
    let (_, params) = params.expect("every shader has `var<immediate> params: Params`");
    &module.types[params.ty]
}

/// A WGSL struct as a `#[repr(C)]` Rust struct; a runtime-sized last member is left out.
fn struct_of(module: &Module, name: &str) -> Option<String> {
    let (_, ty) = module
        .types
        .iter()
        .find(|(_, t)| t.name.as_deref() == Some(name))?;
    let TypeInner::Struct { members, .. } = &ty.inner else {
        return None;
    };
    let mut text = format!(
        "/// `{name}`, as the shaders declare it.\n#[repr(C)]\n\
         #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]\npub struct {name} {{\n"
    );
    for member in members {
        let field = member.name.as_deref().expect("members are named");
        let ty = match module.types[member.ty].inner {
            TypeInner::Scalar(s) => scalar(s).to_string(),
            TypeInner::Array {
                base,
                size: naga::ArraySize::Constant(n),
                ..
            } => {
                let TypeInner::Scalar(s) = module.types[base].inner else {
                    panic!("{name}.{field}: only arrays of scalars are reflected")
                };
                format!("[{}; {n}]", scalar(s))
            }
            TypeInner::Array {
                size: naga::ArraySize::Dynamic,
                ..
            } => continue,
            _ => panic!("{name}.{field}: only scalars and arrays of them are reflected"),
        };
        writeln!(text, "    pub {field}: {ty},").expect("a String takes it");
    }
    text.push_str("}\n");
    Some(text)
}

fn scalar(s: naga::Scalar) -> &'static str {
    match (s.kind, s.width) {
        (ScalarKind::Uint, 4) => "u32",
        (ScalarKind::Sint, 4) => "i32",
        (ScalarKind::Float, 4) => "f32",
        _ => panic!("only 32-bit scalars are reflected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tabla_core::op::list::{Access, Op, Operand};

    #[test]
    fn the_reflected_file_is_fresh() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PATH);
        let found = std::fs::read_to_string(file).expect("it is there");
        let wanted = params();
        let differ = wanted.lines().zip(found.lines()).position(|(a, b)| a != b);
        assert!(
            wanted == found,
            "{PATH}:{}: the file is not what the shaders say; run `cargo reflect`",
            differ.unwrap_or_else(|| wanted.lines().count().min(found.lines().count())) + 1
        );
    }

    #[test]
    fn shaders_bind_what_the_list_of_operations_says() {
        for kernel in kernels() {
            let op = Op::ALL.iter().find(|op| op.name() == kernel.stem);
            let op = op.unwrap_or_else(|| panic!("{}: no operation in the list", kernel.stem));
            let operand = |o: &Operand| (o.name.to_string(), o.access != Access::Read);
            let wanted: Vec<_> = op.operands().iter().map(operand).collect();
            assert_eq!(wanted, kernel.bindings, "{}", kernel.name);
        }
    }
}
