//! No circle between files.
//!
//! A file uses another one if it names an item that is defined there: by a `use`, or by a path in its code. A re-export is followed to the
//! file that defines the item, and to re-export an item is no use of it; nor is it one to declare a module or to name a module alone.
//! Tests and loom models may use any file.
//!
//! - No file uses itself through others. So a module's file either composes the files below it, or they extend its types: they may have
//!   further `impl` blocks of these. A helper or a type that both need lies in a file of its own.
//! - The same holds for the modules beside each other, each with everything below it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::assert_no_violations;
use crate::source::{Source, is_word, sources};

/// A module's path from the crate's root: `["upstream", "client"]`.
type Module = Vec<String>;

/// What one file names of another.
struct Use {
    line: usize,
    /// The path from the crate's root, re-exports resolved.
    path: Vec<String>,
    /// The module in whose file the item is defined.
    target: Module,
}

/// A name that a `use` brings into a file.
struct Import {
    line: usize,
    path: Vec<String>,
    is_public: bool,
}

/// A file's code without its imports, and the imports by name.
struct File {
    module: Module,
    path: String,
    imports: BTreeMap<String, Import>,
    code: String,
}

struct Files(BTreeMap<Module, File>);

impl Files {
    fn new(sources: &[Source]) -> Self {
        let modules: BTreeSet<Module> = sources.iter().map(module_of).collect();
        let files = sources.iter().map(|source| file(source, &modules));
        Self(files.map(|file| (file.module.clone(), file)).collect())
    }

    /// The module in whose file a path's item is defined, and the item's path there.
    fn resolve(&self, path: &[String], depth: usize) -> Option<(Module, Vec<String>)> {
        let module = (1..=path.len())
            .rev()
            .find_map(|length| self.0.get(&path[..length]))?;
        let rest = &path[module.module.len()..];
        let import = rest.first().and_then(|name| module.imports.get(name));
        match import {
            Some(import) if depth < 8 => {
                let path = [&import.path[..], &rest[1..]].concat();
                self.resolve(&path, depth + 1)
            }
            _ => Some((module.module.clone(), path.to_vec())),
        }
    }

    /// What a file names of other files.
    fn uses(&self, file: &File) -> Vec<Use> {
        let mut found = Vec::new();
        let mut add = |line, path: &[String]| {
            let Some((target, path)) = self.resolve(path, 0) else {
                return;
            };
            // To name a module without an item of it is no use.
            if target != file.module && path.len() > target.len() {
                found.push(Use { line, path, target });
            }
        };
        for (line, path) in paths(&file.code) {
            let import = file.imports.get(&path[0]);
            match (import, path.len()) {
                (Some(import), 1) if import.is_public => add(line, &import.path),
                (Some(import), 2..) => add(line, &[&import.path[..], &path[1..]].concat()),
                (None, 2..) => {
                    if let Some(path) =
                        absolute(&path, &file.module, |module| self.0.contains_key(module))
                    {
                        add(line, &path);
                    }
                }
                _ => {}
            }
        }
        for import in file.imports.values().filter(|import| !import.is_public) {
            add(import.line, &import.path);
        }
        found
    }
}

fn module_of(source: &Source) -> Module {
    source.module().into_iter().map(str::to_owned).collect()
}

fn file(source: &Source, modules: &BTreeSet<Module>) -> File {
    let module = module_of(source);
    let (mut imports, mut code) = (BTreeMap::new(), source.code.clone());
    for (start, end) in use_items(&source.code) {
        let line = line_of(&source.code, start);
        let is_public = source.code[..start].trim_end().ends_with(['b', ')']);
        for (path, name) in expand(&source.code[start + "use".len()..end]) {
            if let Some(path) = absolute(&path, &module, |module| modules.contains(module)) {
                let import = Import {
                    line,
                    path,
                    is_public,
                };
                imports.insert(name, import);
            }
        }
        let blank = blanks(&code[start..=end]);
        code.replace_range(start..=end, &blank);
    }
    File {
        module,
        path: source.path.clone(),
        imports,
        code,
    }
}

/// The same lines without their text.
fn blanks(text: &str) -> String {
    let blank = |c| if c == '\n' { '\n' } else { ' ' };
    text.chars().map(blank).collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Where the `use` items begin, and where their semicolons are.
fn use_items(code: &str) -> Vec<(usize, usize)> {
    let is_item = |at: usize| {
        let before = code[..at].trim_end();
        let begins = before.is_empty()
            || before.ends_with([';', '}', '{', ']', ')'])
            || before.ends_with("pub");
        let follows_word = at > 0 && is_word(code.as_bytes()[at - 1]);
        begins && !follows_word && code[at + 3..].starts_with(' ')
    };
    let starts = code.match_indices("use").map(|(at, _)| at);
    starts
        .filter(|&at| is_item(at))
        .filter_map(|at| Some((at, at + code[at..].find(';')?)))
        .collect()
}

/// A path from the crate's root, if the path leads to the crate's own modules.
fn absolute(
    path: &[String],
    module: &[String],
    is_module: impl Fn(&Module) -> bool,
) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" | "kube_fanout" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let levels = path.iter().take_while(|part| *part == "super").count();
            let length = module.len().checked_sub(levels)?;
            Some([&module[..length], &path[levels..]].concat())
        }
        _ => {
            let child = [module, &path[..1]].concat();
            is_module(&child).then(|| [module, path].concat())
        }
    }
}

/// The paths of a use tree, with the names that they bring.
fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some(group) = tree.strip_prefix('{') {
        let group = group.strip_suffix('}').unwrap_or(group);
        return members(group).into_iter().flat_map(expand).collect();
    }
    if let Some((head, rest)) = tree.split_once("::")
        && head.bytes().all(is_word)
    {
        let joined = |(mut path, name): (Vec<String>, String)| {
            if path == ["self"] {
                path.clear();
            }
            path.insert(0, head.to_owned());
            let name = if name == "self" {
                head.to_owned()
            } else {
                name
            };
            (path, name)
        };
        return expand(rest).into_iter().map(joined).collect();
    }
    let (name, alias) = tree.split_once(" as ").unwrap_or((tree, tree));
    vec![(vec![name.trim().to_owned()], alias.trim().to_owned())]
}

/// The members of a group, at the commas outside of inner groups.
fn members(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let outside = |c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let members = group.split(outside);
    members.filter(|member| !member.trim().is_empty()).collect()
}

/// The paths that the code names, also those of one segment, with their lines.
fn paths(code: &str) -> Vec<(usize, Vec<String>)> {
    let bytes = code.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
            continue;
        }
        // A declared module may have the name of an item.
        let is_start = !["::", ".", "mod "]
            .iter()
            .any(|before| code[..at].ends_with(before));
        let mut path = Vec::new();
        loop {
            let length = bytes[at..]
                .iter()
                .take_while(|&&byte| is_word(byte))
                .count();
            path.push(code[at..at + length].to_owned());
            at += length;
            let follows = code[at..].strip_prefix("::");
            if !follows.is_some_and(|rest| rest.bytes().next().is_some_and(is_word)) {
                break;
            }
            at += "::".len();
        }
        if is_start {
            found.push((line, path));
        }
    }
    found
}

/// One use of a file by another, for a reader who has to end the circle.
struct Edge {
    from: Module,
    to: Module,
    text: String,
}

/// A shortest circle through each module that is in one and not in a circle that was found before. Each line is a use.
fn circles(edges: &[Edge]) -> Vec<String> {
    let mut targets: BTreeMap<&Module, BTreeMap<&Module, &str>> = BTreeMap::new();
    for edge in edges {
        let texts = targets.entry(&edge.from).or_default();
        texts.entry(&edge.to).or_insert(&edge.text);
    }
    let (mut found, mut reported) = (Vec::new(), BTreeSet::new());
    for start in targets.keys().copied() {
        if reported.contains(start) {
            continue;
        }
        let (mut steps, mut waiting) = (BTreeMap::new(), VecDeque::from([start]));
        while let Some(module) = waiting.pop_front() {
            for (&target, &text) in targets.get(module).into_iter().flatten() {
                if let Entry::Vacant(entry) = steps.entry(target) {
                    entry.insert((module, text));
                    waiting.push_back(target);
                }
            }
        }
        let (mut texts, mut at) = (Vec::new(), start);
        while let Some((before, text)) = steps.get(at) {
            texts.push(*text);
            reported.insert(at);
            at = before;
            if at == start {
                break;
            }
        }
        texts.reverse();
        if !texts.is_empty() {
            found.push(texts.join("\n    "));
        }
    }
    found
}

fn edges(sources: &[Source]) -> Vec<Edge> {
    let files = Files::new(sources);
    let mut found = Vec::new();
    for file in files.0.values() {
        for used in files.uses(file) {
            let text = format!(
                "{}:{}: names {}",
                file.path,
                used.line,
                used.path.join("::")
            );
            found.push(Edge {
                from: file.module.clone(),
                to: used.target,
                text,
            });
        }
    }
    found
}

/// The use as one between two modules beside each other; `None` if one of the files is above the other.
fn sibling(edge: &Edge) -> Option<Edge> {
    let common = edge
        .from
        .iter()
        .zip(&edge.to)
        .take_while(|(a, b)| a == b)
        .count();
    let is_sibling = common < edge.from.len() && common < edge.to.len();
    is_sibling.then(|| Edge {
        from: edge.from[..=common].to_vec(),
        to: edge.to[..=common].to_vec(),
        text: edge.text.clone(),
    })
}

/// The product's code by crate, without the crates' roots, which declare and compose.
fn product() -> BTreeMap<String, Vec<Source>> {
    let mut found: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for source in sources("src") {
        let is_root = source.path == "src/main.rs" || source.path.ends_with("/lib.rs");
        if !source.is_test() && !is_root {
            let folder = source.crate_folder().to_owned();
            found.entry(folder).or_default().push(source);
        }
    }
    found
}

/// The circles between files, and those between modules beside each other.
fn violations(edges: &[Edge]) -> Vec<String> {
    let siblings: Vec<Edge> = edges.iter().filter_map(sibling).collect();
    let mut found = circles(edges);
    found.extend(circles(&siblings));
    found.sort();
    found.dedup();
    found
}

#[test]
fn no_file_uses_itself_through_others() {
    let crates = product();
    let edges: Vec<Vec<Edge>> = crates.values().map(|sources| edges(sources)).collect();
    assert!(
        edges.iter().flatten().count() > 1_000,
        "the uses were not found"
    );
    let found = edges.iter().flat_map(|edges| violations(edges)).collect();
    assert_no_violations("circles of files", found);
}

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| Source::new(path, text))
        .collect();
    violations(&edges(&sources))
}

#[track_caller]
fn planted(files: &[(&str, &str)], expected: &str) {
    assert_eq!(found(files), [expected], "{files:?}");
}

#[test]
fn a_planted_circle_is_found() {
    let two = "src/a.rs:1: names b::B\n    src/b.rs:2: names a::A";
    planted(
        &[
            ("src/a.rs", "use crate::b::B;\nstruct A(B);"),
            ("src/b.rs", "\nuse crate::{a::{A}, c};\nstruct B(A);"),
            ("src/c.rs", ""),
        ],
        two,
    );
    planted(
        &[
            ("src/a.rs", "pub struct A(super::b::B);"),
            ("src/b.rs", "use crate::a;\npub struct B(a::A);"),
        ],
        two,
    );
    // Through three files, one of them by a re-export.
    planted(
        &[
            ("src/a.rs", "use crate::b::C;"),
            ("src/b.rs", "mod c;\npub use c::C;"),
            ("src/b/c.rs", "use crate::d::D;"),
            ("src/d.rs", "fn d() { crate::a::a() }"),
        ],
        "src/a.rs:1: names b::c::C\n    src/b/c.rs:1: names d::D\n    src/d.rs:1: names a::a",
    );
    // Between a module and one below it, which it names although it also re-exports it.
    planted(
        &[
            (
                "src/a.rs",
                "mod b;\npub use b::B;\nconst C: u8 = 0;\nstruct A(B);",
            ),
            ("src/a/b.rs", "use super::C;"),
        ],
        "src/a.rs:4: names a::b::B\n    src/a/b.rs:1: names a::C",
    );
    // Between modules beside each other, although no file is in a circle.
    planted(
        &[
            ("src/a/x.rs", "use crate::b::x::X;"),
            ("src/a/y.rs", ""),
            ("src/b/x.rs", ""),
            ("src/b/y.rs", "use crate::a::y::Y as Z;"),
        ],
        "src/a/x.rs:1: names b::x::X\n    src/b/y.rs:1: names a::y::Y",
    );
}

#[test]
fn uses_in_one_direction_are_left_alone() {
    let files = [
        (
            "src/a.rs",
            "mod b;\nmod c;\npub use b::{B, b};\npub struct A;",
        ),
        (
            "src/a/b.rs",
            "use super::{A, c};\npub struct B(A, c::C);\nimpl A {}",
        ),
        (
            "src/a/c.rs",
            "/// [`super::b`]\npub struct C;\n#[cfg(test)]\nmod tests { use crate::a::B; }",
        ),
        ("src/d.rs", "use crate::a::{self, A};\nfn d() { a::b() }"),
    ];
    assert_eq!(found(&files), Vec::<String>::new());
}
