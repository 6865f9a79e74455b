//! `include/tabla.h`: what cbindgen makes of the C ABI, with its comments fit for C.

use crate::{Result, root};
use cbindgen::{Builder, Config};
use std::path::PathBuf;

/// The header.
pub(crate) fn header() -> Result<String> {
    let root = root();
    let config = Config::from_file(root.join("cbindgen.toml"))?;
    let sources = sources()?;
    let builder = Builder::new().with_config(config);
    let builder = sources.iter().fold(builder, |b, file| b.with_src(file));
    let mut bytes = Vec::new();
    builder.generate()?.write(&mut bytes);
    let text = String::from_utf8(bytes)?;
    Ok(plain_comments(&text))
}

/// The files that the header is made of, in an order that does not depend on the machine.
fn sources() -> Result<Vec<PathBuf>> {
    let root = root();
    let mut files = vec![root.join("src/error.rs")];
    let mut own = Vec::new();
    for entry in std::fs::read_dir(root.join("src/capi"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "rs") {
            own.push(path);
        }
    }
    own.sort();
    files.extend(own);
    Ok(files)
}

/// Takes what belongs to Rust out of the comments: the heading over what a caller owes, whose
/// sentences stay as a paragraph of their own.
fn plain_comments(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut after_heading = false;
    for line in text.lines() {
        let said = line.trim().trim_start_matches("/**").trim_start_matches('*');
        if said.trim() == "# Safety" {
            after_heading = true;
            continue;
        }
        // The empty line under the heading goes with it.
        let skipped = after_heading && said.trim().is_empty();
        after_heading = false;
        if !skipped {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::plain_comments;

    #[test]
    fn a_caller_owes_sentences_and_no_headings() {
        let rust = "/**\n * Writes.\n *\n * # Safety\n *\n * `out` is a place.\n */\nint f(int *out);";
        let c = "/**\n * Writes.\n *\n * `out` is a place.\n */\nint f(int *out);\n";
        assert_eq!(plain_comments(rust), c);
    }
}
