//! Shader text: imports and variants. Also a module of the build script, so it imports nothing.

use std::collections::BTreeMap;

/// Reads the file `shaders/variants`: a line per kernel that exists in several storage types.
pub fn variants(text: &str) -> BTreeMap<String, Vec<Option<String>>> {
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(stem, list)| {
            let list = list
                .split_whitespace()
                .map(|v| Some(v.to_string()))
                .collect();
            (stem.trim().to_string(), list)
        })
        .collect()
}

/// The name of a kernel: `gemv_q4_0`, or the stem alone.
pub fn name(stem: &str, variant: Option<&str>) -> String {
    variant.map_or_else(|| stem.to_string(), |v| format!("{stem}_{v}"))
}

/// The whole text of a kernel: `#import a` stands for `lib/a.wgsl`, once; where there is no such
/// file, for `lib/a/<variant>.wgsl`.
///
/// # Errors
///
/// Names the file that `read` does not have.
pub fn expand(
    stem: &str,
    variant: Option<&str>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut seen = Vec::new();
    paste(&format!("{stem}.wgsl"), variant, read, &mut seen, &mut out)?;
    Ok(out)
}

fn paste(
    file: &str,
    variant: Option<&str>,
    read: &dyn Fn(&str) -> Option<String>,
    seen: &mut Vec<String>,
    out: &mut String,
) -> Result<(), String> {
    if seen.iter().any(|s| s == file) {
        return Ok(());
    }
    seen.push(file.to_string());
    let text = read(file).ok_or_else(|| format!("no file {file}"))?;
    for line in text.lines() {
        let Some(import) = line.strip_prefix("#import ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let plain = format!("lib/{}.wgsl", import.trim());
        let target = match variant {
            Some(v) if read(&plain).is_none() => format!("lib/{}/{v}.wgsl", import.trim()),
            _ => plain,
        };
        paste(&target, variant, read, seen, out)?;
    }
    Ok(())
}
