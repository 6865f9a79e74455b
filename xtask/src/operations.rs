//! `docs/OPS.md`: the list of operations as a page.

use crate::tree::Result;
use std::fmt::Write as _;
use tabla_core::dtype::DType;
use tabla_core::op::list::{Access, Op};
use tabla_core::op::table::KernelId;

const HEAD: &str = "\
<!-- Written by `cargo xtask bless` from crates/core/src/op/list.rs: change it there. -->
# Operations

A table is made of these operations and no others.
The shader of each is `shaders/<name>.wgsl`; its CPU kernel is named in `crates/cpu/src/kernel/mod.rs`.
Operands stand in the order of the shader's bindings: a plain one is read, `=` is written, `+` is read and written in place.
`state` is the step state: how many rows live, their tokens and positions, how the next token is picked.
Where storage types are named, there is one kernel for each.

";

/// The page.
pub(crate) fn operations() -> Result<String> {
    let mut page = HEAD.to_string();
    for &op in Op::ALL {
        writeln!(page, "## {}\n\n{}\n", op.name(), op.formula())?;
        let operands: Vec<_> = op
            .operands()
            .iter()
            .map(|o| match o.access {
                Access::Read => format!("`{}`", o.name),
                Access::Write => format!("`{}=`", o.name),
                Access::Update => format!("`{}+`", o.name),
            })
            .collect();
        writeln!(page, "Operands: {}.", operands.join(", "))?;
        let variants: Vec<_> = KernelId::variants(op).map(DType::name).collect();
        if !variants.is_empty() {
            writeln!(page, "\nStorage types: {}.", variants.join(", "))?;
        }
        page.push('\n');
    }
    Ok(page.trim_end().to_string() + "\n")
}
