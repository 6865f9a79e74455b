//! Expands, validates and reflects every shader into `$OUT_DIR/shaders.rs`.
//!
//! A shader that naga refuses fails the build with naga's own message and line. What is
//! reflected (bindings, parameters, step state, tile sizes) is written nowhere else.

#[expect(unreachable_pub, reason = "the library shares this file")]
#[path = "src/exec/gpu/source.rs"]
mod source;

use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Expression, Literal, Module, ScalarKind, StorageAccess, TypeInner};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=shaders");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // What dependencies export to C is not exported from here.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let files = read_sources(&root.join("shaders"));
    let variants = source::variants(&files["variants"]);
    let forms = source::forms(&files["forms"]);

    let mut rows = String::new();
    let mut modules = String::new();
    let mut shared = BTreeMap::new();
    let mut page = None;
    for stem in files
        .keys()
        .filter_map(|f| f.strip_suffix(".wgsl"))
        .filter(|f| !f.contains('/'))
    {
        let mut params = None;
        let of_stem = variants.get(stem).cloned().unwrap_or_else(|| vec![None]);
        let of_stem = of_stem.iter().map(Option::as_deref);
        for which in of_stem.flat_map(|variant| kernels(stem, variant, &variants, &forms)) {
            let name = which.name();
            let text = source::expand(which, &|f| files.get(f).cloned())
                .unwrap_or_else(|e| panic!("shaders: {name}: {e}"));
            let module = validate(&name, &text);
            let own = params_of(&module);
            assert!(
                params.get_or_insert_with(|| own.clone()) == &own,
                "{name}: Params vary"
            );
            page = page.or(constant(&module, "PAGE"));
            for name in ["Row", "State", "Sampler", "Bias", "LogProbs"] {
                if let Some(text) = struct_of(&module, name) {
                    shared.insert(name, text);
                }
            }
            rows.push_str(&row(which, &module));
        }
        let body = params.expect("at least one variant");
        writeln!(
            modules,
            "pub mod {stem} {{\n    use bytemuck::{{Pod, Zeroable}};\n{body}}}"
        )
        .expect("a String takes it");
    }
    let sources: String = files
        .iter()
        .map(|(f, t)| format!("    ({f:?}, {t:?}),\n"))
        .collect();
    let shared: String = shared.into_values().collect();
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it")).join("shaders.rs");
    let page = page.expect("shaders that read the cache have const PAGE");
    let text = format!(
        "use bytemuck::{{Pod, Zeroable}};\n{HEADER}\
         /// Positions of a page of the KV cache.\npub const PAGE: u32 = {page};\n{shared}{modules}\
         pub static SHADERS: &[Shader] = &[\n{rows}];\n\
         pub static SOURCES: &[(&str, &str)] = &[\n{sources}];\n"
    );
    std::fs::write(out, text).expect("OUT_DIR takes files");
}

/// The plain kernel of a stem for a storage type, then its forms.
fn kernels<'a>(
    stem: &'a str,
    variant: Option<&'a str>,
    variants: &'a BTreeMap<String, Vec<Option<String>>>,
    forms: &'a [source::Form],
) -> impl Iterator<Item = source::Which<'a>> {
    let listed = move |list: &String| variants[list].iter().any(|v| v.as_deref() == variant);
    let has = move |form: &&source::Form| {
        form.stems.iter().any(|s| s == stem) && form.list.as_ref().is_none_or(listed)
    };
    let names = forms
        .iter()
        .filter(has)
        .map(|form| Some(form.name.as_str()));
    std::iter::once(None)
        .chain(names)
        .map(move |form| source::Which {
            stem,
            variant,
            form,
        })
}

const HEADER: &str = "
/// A binding of a kernel: its name and whether the kernel writes it.
#[derive(Clone, Copy, Debug)]
pub struct Binding { pub name: &'static str, pub writable: bool }
/// A kernel: interface and tile; its text is expanded from `SOURCES`.
#[derive(Clone, Copy, Debug)]
pub struct Shader {
    pub name: &'static str,
    pub stem: &'static str,
    pub variant: Option<&'static str>,
    pub form: Option<&'static str>,
    pub bindings: &'static [Binding],
    /// Units of work, and tokens, that one workgroup does.
    pub units: u32,
    pub tokens: u32,
    pub params_bytes: u32,
}
";

/// Every file below `shaders/`, by its path there.
fn read_sources(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("shaders/ is there") {
            let path = entry.expect("shaders/ can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(root)
                    .expect("below root")
                    .to_str()
                    .expect("ASCII");
                let text = std::fs::read_to_string(&path).expect("a shader is text");
                files.insert(name.replace('\\', "/"), text);
            }
        }
    }
    files
}

fn validate(name: &str, text: &str) -> Module {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|e| panic!("shaders: {name}: {}", e.emit_to_string(text)));
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|e| panic!("shaders: {name}: {}", e.emit_to_string(text)));
    module
}

/// One row of `SHADERS`.
fn row(which: source::Which<'_>, module: &Module) -> String {
    let name = which.name();
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
    for (i, (binding, name, _)) in bindings.iter().enumerate() {
        assert!(
            *binding as usize == i,
            "{name}: bindings must count from 0 without holes"
        );
    }
    let bindings: Vec<_> = bindings
        .iter()
        .map(|(_, name, writable)| format!("Binding {{ name: {name:?}, writable: {writable} }}"))
        .collect();
    format!(
        "    Shader {{ name: {name:?}, stem: {:?}, variant: {:?}, form: {:?}, \
         bindings: &[{}], units: {}, tokens: {}, params_bytes: {} }},\n",
        which.stem,
        which.variant,
        which.form,
        bindings.join(", "),
        constant(module, "UNITS").unwrap_or_else(|| panic!("{name}: const UNITS is missing")),
        constant(module, "TOKENS").unwrap_or(1),
        params_type(module).inner.size(module.to_ctx()),
    )
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
