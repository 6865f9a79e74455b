//! Shader text: imports and variants. Also a module of the build script, so it imports nothing.

use std::collections::BTreeMap;

/// Reads the file `shaders/variants`: a line per kernel that exists in several storage types. A
/// word that is the name of an earlier line stands for its list.
pub fn variants(text: &str) -> BTreeMap<String, Vec<Option<String>>> {
    let mut lists: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    for (name, words) in lines.filter_map(|line| line.split_once(':')) {
        let list = words.split_whitespace().flat_map(|word| {
            let one = || vec![Some(word.to_string())];
            lists.get(word).cloned().unwrap_or_else(one)
        });
        let list = list.collect();
        lists.insert(name.trim().to_string(), list);
    }
    lists
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
