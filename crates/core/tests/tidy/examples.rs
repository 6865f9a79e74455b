//! Examples for each rule: the expected findings with line numbers.

use super::*;

fn check(rule: fn(&[File]) -> Vec<String>, files: &[(&str, &str)], expected: &[&str]) {
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| File::new(path, text))
        .collect();
    let found = rule(&files);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.starts_with(expected),
            "{found} does not begin with {expected}"
        );
    }
}

#[test]
fn comments_and_literals_are_replaced_by_blanks() {
    let text = "a // b\n/* c */ \"d \\\" // e\" f r#\"g\"h\"# 'i' '\\'' '\"' &'static j";
    let code = blank(text, Keep::Code);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.split_whitespace().collect::<String>(), "afr#&staticj");
    assert!(
        blank(text, Keep::Literals).contains("// e"),
        "literals are kept"
    );
}

#[test]
fn finds_disallowed_module_imports() {
    let page = "\n| module | may import | must not contain |\n|---|---|---|\n| `op` | dtype | x |\n\
                | arch | op, format::Metadata | x |\n| dtype | nothing | x |\n| plan | op | x |\n| load | arch | x |\n";
    let arch = "//! A.\nuse crate::{op::list, error::Result, format::{Metadata, Kind}};\n\
                fn f() { crate::exec::run(); } // crate::load\n";
    let op = "use super::super::exec;\nuse super::list;\nuse super::super::super::x;\n\
              #[cfg(test)]\nmod tests { use crate::plan::x; }";
    check(
        module_imports,
        &[
            ("ARCHITECTURE.md", page),
            ("crates/load/src/arch/llama.rs", arch),
            (
                "crates/load/src/hf/a.rs",
                "use crate::arch::X;\nuse crate::weight::Y;\nuse crate::exec::Z;",
            ),
            ("src/dtype.rs", "use super::error;\nuse crate::dtype::x;"),
            (
                "crates/core/src/op/list.rs",
                "use crate::dtype::DType;\nfor_each_op!(crate::for_each_op);",
            ),
            ("crates/core/src/op/a.rs", op),
            (
                "crates/plan/src/a.rs",
                "use crate::builder::X;\nuse tabla_core::op::list::Op;\nuse tabla_core::exec::Program;\n",
            ),
            ("src/extra.rs", ""),
        ],
        &[
            "crates/load/src/arch/llama.rs:2: arch may not import format::Kind",
            "crates/load/src/arch/llama.rs:3: arch may not import exec::run",
            "crates/load/src/hf/a.rs:3: load may not import exec::Z",
            "src/dtype.rs:1: dtype may not import the crate root",
            "crates/core/src/op/a.rs:1: op may not import the crate root",
            "crates/core/src/op/a.rs:3: op may not import the crate root",
            "crates/plan/src/a.rs:3: plan may not import exec::Program",
            "src/extra.rs:1: extra is not a module",
        ],
    );
}

#[test]
fn finds_disallowed_crate_dependencies() {
    let page = "\n| crate | depends on | must not contain |\n|---|---|---|\n| `tabla-core` | nothing | x |\n\
                | `tabla-cpu` | tabla-core | x |\n";
    let cpu = "[package]\nname = \"tabla-cpu\"\n\n[dependencies]\ntabla-core.workspace = true\n\
               tabla-text = \"1\"\n\n[dev-dependencies]\ntabla = \"1\"\n";
    check(
        crate_dependencies,
        &[
            ("ARCHITECTURE.md", page),
            (
                "crates/core/Cargo.toml",
                "[package]\nname = \"tabla-core\"\n",
            ),
            ("crates/cpu/Cargo.toml", cpu),
            ("crates/new/Cargo.toml", "[package]\nname = \"tabla-new\"\n"),
            ("Cargo.toml", "[workspace]\n"),
        ],
        &[
            "crates/cpu/Cargo.toml:1: tabla-cpu may not depend on tabla-text",
            "crates/new/Cargo.toml:1: tabla-new is not a crate",
        ],
    );
}

#[test]
fn finds_missing_and_extra_operation_files() {
    let list = "Add = add(x: read, y: write);\n/// not = this(one);\nMul = mul(x: read);\nlet a = b.c(d);\n";
    check(
        operations,
        &[
            ("crates/core/src/op/list.rs", list),
            ("shaders/add.wgsl", "// y = x"),
            ("shaders/old.wgsl", "// y = x"),
            ("shaders/lib/x.wgsl", "// x"),
            ("crates/cpu/src/kernel/mod.rs", "mod shared;"),
            ("crates/cpu/src/kernel/shared.rs", ""),
            ("crates/cpu/src/kernel/stray.rs", ""),
        ],
        &[
            "crates/core/src/op/list.rs:1: shaders/mul.wgsl not found",
            "shaders/old.wgsl:1: old is not in",
            "crates/cpu/src/kernel/stray.rs:1: stray is not declared in",
        ],
    );
}

#[test]
fn finds_restricted_words() {
    let text = "#![expect(unsafe_code)]\n// unsafe\nlet a = \"println!\";\nunsafe {}\nprintln!();\nthread::spawn(f);";
    check(
        restricted_words,
        &[
            ("src/a.rs", text),
            ("cli/src/a.rs", "println!()"),
            ("crates/capi/src/a.rs", "unsafe {}"),
        ],
        &[
            "src/a.rs:4: `unsafe`",
            "src/a.rs:6: `thread::spawn`",
            "src/a.rs:5: `println!`",
        ],
    );
    check(
        restricted_words,
        &[
            ("crates/load/src/a.rs", "use wgpu::Device;"),
            ("crates/gpu/src/a.rs", "wgpu::x()"),
        ],
        &["crates/load/src/a.rs:1: `wgpu::`"],
    );
}

#[test]
fn finds_unguarded_functions() {
    let text = "#[unsafe(no_mangle)]\npub extern \"C\" fn a() -> i32 {\n    guard(|| x)\n}\n\
                #[unsafe(no_mangle)]\npub unsafe extern \"C\" fn b() {\n    let x = 1;\n}\n\
                pub extern \"C\" fn c() {}\n\
                #[unsafe(no_mangle)]\npub extern \"C\" fn tabla_version() {}\n\
                extern \"C\" fn inner() {}\ntype F = unsafe extern \"C\" fn(u32);\n";
    check(
        guards,
        &[("crates/capi/src/a.rs", text)],
        &[
            "crates/capi/src/a.rs:6: b must begin",
            "crates/capi/src/a.rs:9: c must be both public",
        ],
    );
}

#[test]
fn finds_architecture_names() {
    let text = "// llama\nlet a = \"llama.cpp\";\nlet b = \"llama.block_count\";\n\
                #[cfg(test)]\nmod tests { \"llama\" }";
    check(
        architecture_names,
        &[
            ("crates/load/src/arch/llama.rs", "name: \"llama\","),
            ("crates/load/src/a.rs", text),
            ("crates/load/src/b.rs", "fn is_llama() {}"),
            ("crates/text/src/a.rs", "\"llama\""),
        ],
        &[
            "crates/load/src/a.rs:3: architecture name",
            "crates/load/src/b.rs:1: architecture name",
        ],
    );
}

#[test]
fn finds_files_without_description() {
    check(
        first_lines,
        &[
            ("src/a.rs", "use x;"),
            ("src/b.rs", "//! B.\n"),
            ("shaders/a.wgsl", "// adds"),
            ("shaders/b.wgsl", "// y = x"),
            ("shaders/lib/c.wgsl", "fn c() {}"),
        ],
        &[
            "src/a.rs:1: ",
            "shaders/a.wgsl:1: ",
            "shaders/lib/c.wgsl:1: ",
        ],
    );
}

#[test]
fn finds_long_and_unfinished_files() {
    let long = "\n".repeat(LINES_MAX + 1);
    let marker = format!("a\n// {} b", MARKERS[0]);
    let local_path = format!("see {}x", LOCAL_PATHS[0]);
    check(
        length_and_markers,
        &[
            ("src/a.rs", &long),
            ("crates/core/src/op/list.rs", &long),
            ("docs/a.md", &marker),
            ("README.md", &local_path),
        ],
        &["src/a.rs:901: ", "docs/a.md:2: ", "README.md:1: "],
    );
}

#[test]
fn finds_vague_words() {
    let text = format!("// {0}s\n// {0} it\n", PROSE[0].0);
    let capital = format!(
        "{}{} waits",
        PROSE[5].0[..1].to_uppercase(),
        &PROSE[5].0[1..]
    );
    check(
        prose,
        &[("src/a.rs", &text), ("docs/a.md", &capital)],
        &["src/a.rs:2: ", "docs/a.md:1: "],
    );
}

/// Finding if `b.rs` depends on `a.rs`.
const CYCLE: &[&str] = &["cli/src/a.rs:2: import cycle: a.rs -> b.rs -> a.rs"];

/// Checks the findings for this `b.rs`, on which `a.rs` depends.
#[track_caller]
fn check_cycle(b: &str, findings: &[&str]) {
    let files = [
        (
            "cli/src/main.rs",
            "mod a;\nmod b;\nmod c;\nfn main() { a::run(); }",
        ),
        (
            "cli/src/a.rs",
            "//! A.\nuse crate::b::Item;\npub(crate) fn run() {}",
        ),
        ("cli/src/b.rs", b),
        (
            "cli/src/c/mod.rs",
            "mod d;\npub(crate) use crate::a::run;\npub(crate) use d::Leaf;",
        ),
        ("cli/src/c/d.rs", "pub(crate) struct Leaf;"),
    ];
    check(cycles::cycles, &files, findings);
}

#[test]
fn cycles_finds_all_forms_of_imports() {
    for b in [
        "use crate::a::run;",
        "use super::a::run;",
        "use super::a::*;",
        "use crate::{c::Leaf, a::{self, run}};",
        "use {std::fmt, crate::a::run as go};",
        "use crate::a;\nfn f() { a::run(); }",
        "use crate::a as other;\nfn f() { other::run(); }",
        "fn f() { super::a::run(); }",
        "fn f(x: Vec<crate::a::Type>) {}",
        "mod inner {\n    use super::super::a::run;\n}",
        "mod inner {}\nuse inner::super::super::a::run;\nuse self::super::a::run;",
        "use crate::c::run;",
        "pub(crate) use crate::a::run;",
        "#[cfg(test)]\nuse std::fmt;\nuse crate::a::run;",
        "macro_rules! m { () => { $crate::a::run() } }",
    ] {
        check_cycle(b, CYCLE);
    }
}

#[test]
fn cycles_ignores_text_that_is_no_dependency() {
    for b in [
        "",
        "// use crate::a::run;\nconst TEXT: &str = \"crate::a::run\";",
        "#[cfg(test)]\nmod tests {\n    use crate::a::run;\n}",
        "#[cfg(all(test, unix))]\nfn f() { crate::a::run(); }",
        "use crate::c::Leaf;",
        "use ::a::run;\nuse other::a::run;\nfn f() { other::a::run(); }",
        "use crate::a;",
        "mod inner {\n    use super::a::run;\n}",
        "pub(in crate::a) fn f(a: u8) -> impl Fn() + use<> { x.a::<u8>() }",
    ] {
        check_cycle(b, &[]);
    }
}

#[test]
fn cycles_resolves_reexports() {
    let parent = "mod child;\nmod other;\npub(crate) use child::Item;\npub(super) use other::*;\n";
    let used = format!("{parent}fn f(item: Item) {{}}");
    let files = |parent, child| {
        [
            ("cli/src/main.rs", "mod m;"),
            ("cli/src/m/mod.rs", parent),
            ("cli/src/m/child.rs", child),
            ("cli/src/m/other.rs", "pub(super) struct Other;"),
            ("cli/src/m/tests.rs", "use super::child::Item;"),
        ]
    };
    let finding = "cli/src/m/mod.rs:3: import cycle: m/mod.rs -> m/child.rs -> m/mod.rs";
    check(cycles::cycles, &files(parent, "use super::Other;"), &[]);
    check(cycles::cycles, &files(parent, "use super::own;"), &[]);
    check(cycles::cycles, &files(&used, "use super::Other;"), &[]);
    check(cycles::cycles, &files(&used, "use super::own;"), &[finding]);
}

#[test]
fn cycles_reports_the_shortest_of_each_group() {
    check(
        cycles::cycles,
        &[
            ("cli/src/a.rs", "use crate::b::B;"),
            ("cli/src/b.rs", "use crate::c::C;"),
            ("cli/src/c.rs", "use crate::a::A;\nuse crate::d::D;"),
            ("cli/src/d.rs", "use crate::c::C;"),
            ("cli/src/e.rs", "use crate::a::A;\nuse crate::f::F;"),
            ("cli/src/f.rs", "fn f() { crate::e::E; }"),
        ],
        &[
            "cli/src/c.rs:2: import cycle: c.rs -> d.rs -> c.rs (shortest of several among 4",
            "cli/src/e.rs:2: import cycle: e.rs -> f.rs -> e.rs",
        ],
    );
}

#[test]
fn source_folders_may_have_a_wildcard() {
    let split = cycles::split_root;
    assert_eq!(split("src/a/b.rs", "src"), Some(("src", "a/b.rs")));
    let found = split("crates/x/src/b.rs", "crates/*/src");
    assert_eq!(found, Some(("crates/x/src", "b.rs")));
    assert_eq!(split("crates/x/tests/b.rs", "crates/*/src"), None);
    assert_eq!(split("src", "src"), None);
}
