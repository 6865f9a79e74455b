//! Each rule finds its bad examples, at the right line, and nothing in the good ones.

use super::*;

fn check(rule: fn(&[File]) -> Vec<String>, files: &[(&str, &str)], wanted: &[&str]) {
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| File::new(path, text))
        .collect();
    let found = rule(&files);
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(
            found.starts_with(wanted),
            "{found} does not begin with {wanted}"
        );
    }
}

#[test]
fn comments_and_literals_become_blanks() {
    let text = "a // b\n/* c */ \"d \\\" // e\" f r#\"g\"h\"# 'i' '\\'' '\"' &'static j";
    let code = blank(text, Keep::Code);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.split_whitespace().collect::<String>(), "afr#&staticj");
    assert!(
        blank(text, Keep::Literals).contains("// e"),
        "literals may stay"
    );
}

#[test]
fn floor_plan_finds_imports() {
    let page = "\n| room | may import | must not know |\n|---|---|---|\n| `op` | dtype | x |\n\
                | arch | op, format::Metadata | x |\n| dtype | nothing | x |\n";
    let arch = "//! A.\nuse crate::{op::list, error::Result, format::{Metadata, Kind}};\n\
                fn f() { crate::exec::run(); } // crate::load\n";
    let op = "use super::super::exec;\nuse super::list;\nuse super::super::super::x;\n\
              #[cfg(test)]\nmod tests { use crate::plan::x; }";
    check(
        floor_plan,
        &[
            ("ARCHITECTURE.md", page),
            ("src/arch/llama.rs", arch),
            ("src/dtype.rs", "use super::error;\nuse crate::dtype::x;"),
            (
                "src/op/list.rs",
                "use crate::dtype::DType;\nfor_each_op!(crate::for_each_op);",
            ),
            ("src/op/a.rs", op),
            ("src/extra.rs", ""),
        ],
        &[
            "src/arch/llama.rs:2: arch may not import format::Kind",
            "src/arch/llama.rs:3: arch may not import exec::run",
            "src/dtype.rs:1: dtype may not import the root",
            "src/op/a.rs:1: op may not import the root",
            "src/op/a.rs:3: op may not import the root",
            "src/extra.rs:1: extra is no room",
        ],
    );
}

#[test]
fn operations_finds_missing_and_extra_files() {
    let list = "Add = add(x: read, y: write);\n/// not = this(one);\nMul = mul(x: read);\nlet a = b.c(d);\n";
    check(
        operations,
        &[
            ("src/op/list.rs", list),
            ("shaders/add.wgsl", "// y = x"),
            ("shaders/old.wgsl", "// y = x"),
            ("shaders/lib/x.wgsl", "// x"),
            ("src/exec/cpu/kernel/mod.rs", "mod shared;"),
            ("src/exec/cpu/kernel/shared.rs", ""),
            ("src/exec/cpu/kernel/add.rs", ""),
            ("src/exec/cpu/kernel/mul.rs", ""),
            ("src/exec/cpu/kernel/stray.rs", ""),
        ],
        &[
            "src/op/list.rs:1: mul has no shaders/mul.wgsl",
            "shaders/old.wgsl:1: old is not in",
            "src/exec/cpu/kernel/stray.rs:1: stray is not in",
        ],
    );
}

#[test]
fn places_finds_words() {
    let text = "#![expect(unsafe_code)]\n// unsafe\nlet a = \"println!\";\nunsafe {}\nprintln!();";
    check(
        places,
        &[
            ("src/a.rs", text),
            ("cli/src/a.rs", "println!()"),
            ("src/capi/a.rs", "unsafe {}"),
        ],
        &["src/a.rs:4: `unsafe`", "src/a.rs:5: `println!`"],
    );
    check(
        places,
        &[
            ("src/load/a.rs", "use wgpu::Device;"),
            ("src/exec/gpu/a.rs", "wgpu::x()"),
        ],
        &["src/load/a.rs:1: `wgpu::`"],
    );
}

#[test]
fn guards_finds_bare_functions() {
    let text = "#[unsafe(no_mangle)]\npub extern \"C\" fn a() -> i32 {\n    guard(|| x)\n}\n\
                #[unsafe(no_mangle)]\npub unsafe extern \"C\" fn b() {\n    let x = 1;\n}\n\
                pub extern \"C\" fn c() {}\n\
                #[unsafe(no_mangle)]\npub extern \"C\" fn tabla_version() {}\n\
                extern \"C\" fn inner() {}\ntype F = unsafe extern \"C\" fn(u32);\n";
    check(
        guards,
        &[("src/capi/a.rs", text)],
        &[
            "src/capi/a.rs:6: b does not begin",
            "src/capi/a.rs:9: c is either public",
        ],
    );
}

#[test]
fn names_finds_architectures() {
    let text = "// llama\nlet a = \"llama.cpp\";\nlet b = \"llama.block_count\";\n\
                #[cfg(test)]\nmod tests { \"llama\" }";
    check(
        names,
        &[
            ("src/arch/mod.rs", "name: \"llama\","),
            ("src/load/a.rs", text),
            ("src/load/b.rs", "fn is_llama() {}"),
            ("src/text/a.rs", "\"llama\""),
        ],
        &[
            "src/load/a.rs:3: architectures",
            "src/load/b.rs:1: architectures",
        ],
    );
}

#[test]
fn first_lines_finds_silent_files() {
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
fn manners_finds_length_promises_and_machines() {
    let long = "\n".repeat(LINES_MAX + 1);
    let promise = format!("a\n// {} b", PROMISES[0]);
    let machine = format!("see {}x", MACHINES[0]);
    check(
        manners,
        &[
            ("src/a.rs", &long),
            ("src/op/list.rs", &long),
            ("docs/a.md", &promise),
            ("README.md", &machine),
        ],
        &["src/a.rs:601: ", "docs/a.md:2: ", "README.md:1: "],
    );
}
