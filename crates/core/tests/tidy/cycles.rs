//! Dependency cycles between the files of a crate.
//!
//! File A depends on file B if code of A outside its tests names an item of B, in a `use`
//! declaration or as a path. A path names an item of the file of its longest prefix that is a module
//! with its own file. A re-exported item belongs to the file that defines it, not to the file that
//! re-exports it. Two things are no dependency of a module on its child: `mod child;`, and
//! `pub use child::Item` unless the module uses `Item` itself.
//!
//! The resolver reads text. It does not see methods, which need no import, and macros are not
//! expanded.

use super::File;
use super::source::{find, without_test_items};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Source folders of the crates that are checked. `*` matches one folder.
const ROOTS: &[&str] = &["src", "crates/*/src", "shaders/src", "cli/src", "xtask/src"];

/// Maximum number of re-exports followed for one path, since re-exports may form a cycle.
const REEXPORTS_MAX: usize = 16;

/// Segments of a path: of a module from the root of its crate, or of a path as written.
type Path = Vec<String>;

/// Dependencies of each file, with the offset of the first path to each.
type Dependencies = BTreeMap<Path, BTreeMap<Path, usize>>;

/// Returns a finding for each group of files that depend on one another.
pub(super) fn cycles(files: &[File]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<(Path, &File)>> = BTreeMap::new();
    for file in files {
        let mut roots = ROOTS.iter();
        let Some((root, below)) = roots.find_map(|root| split_root(&file.path, root)) else {
            continue;
        };
        if let Some(module) = module_of(below) {
            crates.entry(root).or_default().push((module, file));
        }
    }
    let crates = crates.into_iter();
    crates
        .flat_map(|(root, files)| findings(root, files))
        .collect()
}

/// Splits the path of a file into the source folder that matches `pattern` and the rest.
pub(super) fn split_root<'a>(path: &'a str, pattern: &str) -> Option<(&'a str, &'a str)> {
    let mut rest = path;
    for expected in pattern.split('/') {
        let (folder, below) = rest.split_once('/')?;
        if expected != "*" && expected != folder {
            return None;
        }
        rest = below;
    }
    Some((&path[..path.len() - rest.len() - 1], rest))
}

/// The module of a file, by its path below the source folder. `None` for tests, and for further
/// binaries, which are crates of their own.
fn module_of(below: &str) -> Option<Path> {
    let mut module: Path = below
        .strip_suffix(".rs")?
        .split('/')
        .map(str::to_string)
        .collect();
    if module[0] == "bin" || module.iter().any(|name| name == "tests") {
        return None;
    }
    let root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
    if root || module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    Some(module)
}

/// One import of a `use` declaration: `use a::{b, c};` has two.
struct Import {
    /// Module of the file.
    file: Path,
    /// Module that the declaration is in: that of the file, or an inline module.
    scope: Path,
    /// Offset in the file.
    at: usize,
    path: Path,
    /// Name in scope. `None` for a glob.
    name: Option<String>,
    is_public: bool,
}

/// A file of a crate.
struct Source<'a> {
    file: &'a File,
    /// Code without comments, literals, tests and `use` declarations.
    code: String,
    /// Inline modules: their names and bodies.
    inline: Vec<(String, Range<usize>)>,
}

impl Source<'_> {
    /// The module at an offset of this file, whose own module is `module`.
    fn scope(&self, module: &[String], at: usize) -> Path {
        let inside = self.inline.iter().filter(|(_, body)| body.contains(&at));
        let names = inside.map(|(name, _)| name.clone());
        module.iter().cloned().chain(names).collect()
    }

    /// Whether the code uses an imported name. A lower-case name counts only where it is called or
    /// begins a path: it may be that of a variable.
    fn uses(&self, name: &str) -> bool {
        find(&self.code, name).any(|at| {
            let (before, after) = (&self.code[..at], &self.code[at + name.len()..]);
            let is_type = name.starts_with(char::is_uppercase);
            let is_applied = ["(", "::", "!"].iter().any(|next| after.starts_with(next));
            let is_other = [".", "::", "fn "].iter().any(|last| before.ends_with(last));
            !is_other && (is_type || is_applied)
        })
    }

    /// Whether the code defines an item of this name.
    fn defines(&self, name: &str) -> bool {
        const ITEMS: [&str; 9] = [
            "struct", "enum", "union", "fn", "const", "static", "trait", "type", "mod",
        ];
        find(&self.code, name).any(|at| {
            let before = self.code[..at].trim_end();
            ITEMS.iter().any(|item| before.ends_with(item))
        })
    }
}

/// Target of a path.
struct Target {
    /// Module of the file.
    file: Path,
    /// Whether the path ends at a module and names none of its items.
    is_module: bool,
}

/// A crate whose paths can be resolved.
struct Crate<'a> {
    sources: BTreeMap<Path, Source<'a>>,
    /// Inline modules.
    inline: BTreeSet<Path>,
    imports: Vec<Import>,
    /// Absolute paths of imported names, by module and name.
    names: BTreeMap<(Path, String), Path>,
    /// Names imported from other crates, by module.
    external: BTreeSet<(Path, String)>,
    /// Absolute paths of glob imports, by module.
    globs: BTreeMap<Path, Vec<Path>>,
    /// Files of the macros that are exported to the root.
    macros: BTreeMap<String, Path>,
}

impl<'a> Crate<'a> {
    fn new(files: Vec<(Path, &'a File)>) -> Self {
        let mut this = Self {
            sources: BTreeMap::new(),
            inline: BTreeSet::new(),
            imports: Vec::new(),
            names: BTreeMap::new(),
            external: BTreeSet::new(),
            globs: BTreeMap::new(),
            macros: BTreeMap::new(),
        };
        for (module, file) in files {
            // If a crate has lib.rs and main.rs, lib.rs comes first and is the root.
            if !this.sources.contains_key(&module) {
                this.add(module, file);
            }
        }
        this.resolve_imports();
        this
    }

    fn add(&mut self, module: Path, file: &'a File) {
        let code = without_test_items(&file.code);
        let inline = inline_modules(&code);
        let mut source = Source { file, code, inline };
        for (name, body) in &source.inline {
            let mut path = source.scope(&module, body.start - 1);
            path.push(name.clone());
            self.inline.insert(path);
        }
        for (at, _) in source.code.match_indices("#[macro_export]") {
            let after = source.code[at..].split_once("macro_rules!");
            let name = after.map(|(_, rest)| word(rest.trim_start()).0.to_string());
            self.macros.extend(name.map(|name| (name, module.clone())));
        }
        let mut spans = Vec::new();
        for at in find(&source.code, "use") {
            let rest = &source.code[at + 3..];
            let end = rest.find(';').unwrap_or(rest.len());
            // `use<'a>` lists the lifetimes of an opaque type.
            if rest.trim_start().starts_with('<') {
                continue;
            }
            spans.push(at..at + 3 + end);
            let mut found = Vec::new();
            use_tree(&rest[..end], &[], &mut found);
            self.imports
                .extend(found.into_iter().map(|(path, name)| Import {
                    file: module.clone(),
                    scope: source.scope(&module, at),
                    at,
                    path,
                    name,
                    is_public: is_public(&source.code[..at]),
                }));
        }
        for span in spans {
            let blanks = " ".repeat(span.len());
            source.code.replace_range(span, &blanks);
        }
        self.sources.insert(module, source);
    }

    /// Fills `names` and `globs`. An import may begin with a name that another one gives.
    fn resolve_imports(&mut self) {
        let mut waiting: Vec<usize> = (0..self.imports.len()).collect();
        loop {
            let before = waiting.len();
            waiting.retain(|at| {
                let Import {
                    scope, path, name, ..
                } = &self.imports[*at];
                let Some(path) = self.absolute(scope, path) else {
                    return true;
                };
                match name {
                    Some(name) => {
                        self.names.insert((scope.clone(), name.clone()), path);
                    }
                    None => self.globs.entry(scope.clone()).or_default().push(path),
                }
                false
            });
            if waiting.len() == before {
                break;
            }
        }
        for import in waiting.iter().map(|at| &self.imports[*at]) {
            let name = import.name.clone();
            self.external
                .extend(name.map(|name| (import.scope.clone(), name)));
        }
    }

    fn is_module(&self, path: &[String]) -> bool {
        self.sources.contains_key(path) || self.inline.contains(path)
    }

    /// The path from the root of the crate; `None` for a path into another crate.
    fn absolute(&self, scope: &[String], path: &[String]) -> Option<Path> {
        let (first, mut rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => scope.to_vec(),
            "super" => scope.split_last()?.1.to_vec(),
            _ if self.is_module(&[scope, std::slice::from_ref(first)].concat()) => {
                return Some([scope, path].concat());
            }
            _ => self.names.get(&(scope.to_vec(), first.clone()))?.clone(),
        };
        while let Some((_, below)) = rest.split_first().filter(|(name, _)| *name == "super") {
            base.pop()?;
            rest = below;
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Resolves an absolute path through at most `hops` re-exports.
    fn target(&self, path: &[String], hops: usize) -> Target {
        let mut module = Vec::new();
        for (at, name) in path.iter().enumerate() {
            let below = [&module[..], std::slice::from_ref(name)].concat();
            if self.is_module(&below) {
                module = below;
                continue;
            }
            let rest = &path[at + 1..];
            let reexport = self.names.get(&(module.clone(), name.clone()));
            if let Some(target) = reexport.filter(|_| hops > 0) {
                return self.target(&[target, rest].concat(), hops - 1);
            }
            if self.external.contains(&(module.clone(), name.clone())) {
                return Target {
                    file: vec!["another crate".to_string()],
                    is_module: false,
                };
            }
            let exported = self.macros.get(name).filter(|_| module.is_empty());
            let file = match (exported, self.glob(&module, name)) {
                (Some(file), _) | (None, Some(file)) => file.clone(),
                (None, None) => self.file(&module),
            };
            return Target {
                file,
                is_module: false,
            };
        }
        Target {
            file: self.file(&module),
            is_module: true,
        }
    }

    /// The file whose items a module imports by a glob, if one of them has this name.
    fn glob(&self, module: &[String], name: &str) -> Option<&Path> {
        let defines = |path: &[String]| self.sources.get(path).is_some_and(|s| s.defines(name));
        let mut globs = self.globs.get(module)?.iter();
        globs.find(|path| defines(path) && !defines(module))
    }

    /// The file that a module is written in.
    fn file(&self, module: &[String]) -> Path {
        let mut file = module.to_vec();
        while !file.is_empty() && !self.sources.contains_key(&file) {
            file.pop();
        }
        file
    }

    fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::new();
        let mut add = |from: &Path, to: Path, at: usize| {
            if *from != to && self.sources.contains_key(&to) {
                let first = found.entry(from.clone()).or_default().entry(to);
                first
                    .and_modify(|first| *first = at.min(*first))
                    .or_insert(at);
            }
        };
        for import in &self.imports {
            let Some(path) = self.absolute(&import.scope, &import.path) else {
                continue;
            };
            let target = self.target(&path, REEXPORTS_MAX);
            let is_child = target.file.starts_with(&import.file);
            let source = &self.sources[&import.file];
            let is_used = match &import.name {
                Some(name) => source.uses(name),
                None => false,
            };
            // A module is a dependency only by the items that the code names.
            let is_needed = !target.is_module || import.name.is_none();
            if is_needed && !(import.is_public && is_child && !is_used) {
                add(&import.file, target.file, import.at);
            }
            // `use a::plan` imports the function of that name too, if `a` has one.
            let split = path.split_last();
            let item = split.and_then(|(name, a)| self.names.get(&(a.to_vec(), name.clone())));
            if let Some(item) = item.filter(|_| target.is_module && is_used) {
                let target = self.target(item, REEXPORTS_MAX);
                add(&import.file, target.file, import.at);
            }
        }
        for (module, source) in &self.sources {
            for (at, path) in paths(&source.code) {
                if let Some(path) = self.absolute(&source.scope(module, at), &path) {
                    add(module, self.target(&path, REEXPORTS_MAX).file, at);
                }
            }
        }
        found
    }
}

/// The findings of one crate.
fn findings(root: &str, files: Vec<(Path, &File)>) -> Vec<String> {
    let found = Crate::new(files);
    let dependencies = found.dependencies();
    let cycles = dependencies.keys().filter_map(|file| {
        let cycle = shortest_cycle(&dependencies, file)?;
        Some((file, cycle))
    });
    let cycles: BTreeMap<_, _> = cycles.collect();
    let mut reported: BTreeSet<&Path> = BTreeSet::new();
    let mut findings = Vec::new();
    for file in cycles.keys() {
        if reported.contains(file) {
            continue;
        }
        // Files that depend on one another: each is reached from the other.
        let reached = reachable(&dependencies, file);
        let is_mutual = |other: &&&Path| {
            reached.contains_key(**other) && reachable(&dependencies, other).contains_key(*file)
        };
        let group: Vec<_> = cycles.keys().filter(is_mutual).collect();
        reported.extend(group.iter().copied());
        let shortest = group.iter().map(|file| &cycles[**file]);
        let Some(cycle) = shortest.min_by_key(|cycle| cycle.len()) else {
            continue;
        };
        let path = |module: &Path| &found.sources[module].file.path[root.len() + 1..];
        let names: Vec<_> = cycle.iter().chain(cycle.first()).map(path).collect();
        let mut what = format!("import cycle: {}", names.join(" -> "));
        if group.len() > cycle.len() {
            what += &format!(" (shortest of several among {} files)", group.len());
        }
        let (first, next) = (&cycle[0], &cycle[1]);
        let at = dependencies[first][next];
        findings.push(found.sources[first].file.finding(at, what));
    }
    findings
}

/// The files that a file depends on, directly or not, each with the file by which it is reached
/// first.
fn reachable<'a>(dependencies: &'a Dependencies, from: &'a Path) -> BTreeMap<&'a Path, &'a Path> {
    let mut reached = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(file) = waiting.pop_front() {
        for next in dependencies.get(file).into_iter().flat_map(BTreeMap::keys) {
            if !reached.contains_key(next) {
                reached.insert(next, file);
                waiting.push_back(next);
            }
        }
    }
    reached
}

/// The files of the shortest cycle through a file, beginning with it.
fn shortest_cycle(dependencies: &Dependencies, file: &Path) -> Option<Vec<Path>> {
    let reached = reachable(dependencies, file);
    let mut cycle = vec![file.clone()];
    let mut at = *reached.get(file)?;
    while at != file {
        cycle.insert(1, at.clone());
        at = reached[at];
    }
    Some(cycle)
}

/// Names and bodies of the modules in a text, outer ones before inner ones.
fn inline_modules(code: &str) -> Vec<(String, Range<usize>)> {
    let found = find(code, "mod").filter_map(|at| {
        let (name, rest) = word(code[at + 3..].trim_start());
        let body = rest.trim_start().strip_prefix('{')?;
        let start = code.len() - body.len();
        let mut depth = 1;
        let end = body.find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        Some((name.to_string(), start..start + end.unwrap_or(body.len())))
    });
    found.collect()
}

/// Whether a declaration after this text is public to more than its module.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let scoped = before.strip_suffix(')').and_then(|b| b.rsplit_once("pub("));
    before.ends_with("pub") || scoped.is_some_and(|(_, scope)| !scope.contains([')', ';', '{']))
}

/// Splits off the word that a text begins with; empty if it begins with none.
fn word(text: &str) -> (&str, &str) {
    let text = text.strip_prefix("r#").unwrap_or(text);
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// Adds all paths of a use tree with their names in scope. Returns the text after the tree.
fn use_tree<'a>(
    mut text: &'a str,
    prefix: &[String],
    found: &mut Vec<(Path, Option<String>)>,
) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        text = text.trim_start().trim_start_matches('$');
        if let Some(rest) = text.strip_prefix("::") {
            if path.is_empty() {
                // `::name` is another crate, whatever modules there are.
                path.push(String::new());
            }
            text = rest;
        } else if let Some(rest) = text.strip_prefix('{') {
            text = rest.trim_start_matches([',', ' ', '\n']);
            while !text.is_empty() && !text.starts_with('}') {
                let rest = use_tree(text, &path, found);
                // Skip text that is not a use tree.
                let rest = if rest.len() == text.len() {
                    &text[1..]
                } else {
                    rest
                };
                text = rest.trim_start_matches([',', ' ', '\n']);
            }
            return text.strip_prefix('}').unwrap_or(text);
        } else if let Some(rest) = text.strip_prefix('*') {
            found.push((path, None));
            return rest;
        } else {
            let (name, rest) = word(text);
            match name {
                "" => return text,
                // `a::{self}` is `a`.
                "self" if !path.is_empty() => {}
                _ => path.push(name.to_string()),
            }
            text = rest.trim_start();
            if text.starts_with("::") {
                continue;
            }
            let mut given = path.last().cloned();
            if let ("as", rest) = word(text) {
                let (alias, rest) = word(rest.trim_start());
                given = Some(alias.to_string());
                text = rest;
            }
            found.extend(given.map(|name| (path, Some(name))));
            return text;
        }
    }
}

/// Every path of at least two segments, with its offset.
fn paths(code: &str) -> Vec<(usize, Path)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let (first, mut rest) = word(&code[at..]);
        if first.is_empty() {
            at += code[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let mut path = vec![first.to_string()];
        while let Some((next, after)) = rest.strip_prefix("::").map(word) {
            if next.is_empty() {
                break;
            }
            path.push(next.to_string());
            rest = after;
        }
        let before = &code[..at];
        // A path goes on after a type, and a scope of visibility is no import.
        let is_part = before.ends_with(['.', '\'']) || before.ends_with("::");
        if path.len() > 1 && !is_part && !before.ends_with("pub(in ") {
            found.push((at, path));
        }
        at = code.len() - rest.len();
    }
    found
}
