//! Source files as the rules see them: their paths, and their code without comments, literals and tests.

use std::fs;
use std::path::{Path, PathBuf};

/// A Rust file.
pub(crate) struct Source {
    /// Path relative to the repository's root, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
    /// The same lines as `text`, with comments, literals and test items replaced by blanks.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: without_tests(&without_comments_and_literals(text)),
        }
    }

    /// The path of the file's module in its crate: `["watch", "cursor"]` for `src/serving/src/watch/cursor.rs`, `["decode"]` for
    /// `src/wire/src/decode.rs`.
    pub(crate) fn module(&self) -> Vec<&str> {
        let path = self.path[self.crate_folder().len()..].trim_start_matches('/');
        let path = path.strip_suffix(".rs").unwrap_or(path);
        path.split('/').collect()
    }

    /// The folder of the crate's modules: `src`, or `src/wire/src`.
    pub(crate) fn crate_folder(&self) -> &str {
        let end = self.path.rfind("src/").map_or(0, |at| at + "src".len());
        &self.path[..end]
    }

    /// Whether the file contains only tests, samples for tests, or loom models.
    pub(crate) fn is_test(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        parts.iter().any(|part| {
            matches!(
                *part,
                "tests" | "tests.rs" | "samples" | "samples.rs" | "models" | "models.rs"
            )
        })
    }

    /// Lines of code with their numbers, starting at 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folders of the modules of all crates: `src`, and `src/wire/src`.
pub(crate) fn source_folders() -> Vec<String> {
    let entries = fs::read_dir(root().join("src")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut folders: Vec<_> = names.map(|name| format!("src/{name}/src")).collect();
    folders.retain(|folder| root().join(folder).is_dir());
    folders.push("src".to_owned());
    folders
}

/// Every Rust file below `folder`, sorted; empty if there is no such folder.
pub(crate) fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    found.sort();
    found
        .iter()
        .map(|path| {
            let relative = path
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/");
            Source::new(&relative, &fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Skip the program `kube-fanout-top`, examples, and the build output of workspace members.
            let is_skipped = ["src/top", "examples", "target"]
                .iter()
                .any(|end| path.ends_with(end));
            if !is_skipped {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Replaces comments, strings and characters by blanks; newlines stay, so that line numbers stay the same.
fn without_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' if !follows_word(bytes, at) => match raw_string_end(bytes, at) {
                Some(end) => end,
                None => at + 1,
            },
            b'\'' => character_end(bytes, at),
            _ => at + 1,
        };
        if end > at + 1 {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    String::from_utf8(out).unwrap()
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    // `br"` begins a raw string too; `for"` does not.
    let before = |back: usize| at.checked_sub(back).map(|index| bytes[index]);
    match before(1) {
        Some(b'b') => before(2).is_some_and(is_word),
        Some(byte) => is_word(byte),
        None => false,
    }
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |length| at + length)
}

fn block_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut index = at;
    while index < bytes.len() {
        if bytes[index..].starts_with(b"/*") {
            depth += 1;
            index += 2;
        } else if bytes[index..].starts_with(b"*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..]
        .iter()
        .take_while(|&&byte| byte == b'#')
        .count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let length = bytes[open + 1..]
        .windows(close.len())
        .position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The end of a character literal, or of the quote alone where it begins a lifetime.
fn character_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        // The escaped character may itself be a quote.
        let close = bytes.iter().skip(at + 3).position(|&byte| byte == b'\'');
        return close.map_or(bytes.len(), |length| at + 3 + length + 1);
    }
    // One character takes up to four bytes.
    let close = (2..=5).find(|&length| bytes.get(at + length) == Some(&b'\''));
    match close {
        Some(length)
            if std::str::from_utf8(&bytes[at + 1..at + length])
                .is_ok_and(|c| c.chars().count() == 1) =>
        {
            at + length + 1
        }
        _ => at + 1,
    }
}

/// Replaces every item under a `#[cfg(…)]` that names `test` by blanks.
fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(start) = code[from..].find("#[cfg(").map(|index| from + index) {
        let Some(length) = code[start..].find(']') else {
            break;
        };
        let attribute = &code[start..start + length];
        from = start + length;
        let words = attribute.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if attribute.contains("not(") || !words.into_iter().any(|word| word == "test") {
            continue;
        }
        let end = item_end(code.as_bytes(), from);
        for byte in &mut out[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        from = end;
    }
    String::from_utf8(out).unwrap()
}

/// The end of the item after an attribute: after its semicolon or its closing brace.
fn item_end(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b';' if depth == 0 => return index + 1,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

#[test]
fn code_is_what_is_left_without_comments_literals_and_tests() {
    let text = r####"//! crate::a
use crate::b; /* crate::c /* nested */ crate::d */
const S: &str = "crate::e \" crate::f"; const R: &str = r#"crate::g " "#;
fn f<'a>(x: &'a str) -> char { '"' } const Q: char = '\''; const E: char = 'é';
#[cfg(test)]
mod tests { use crate::h; fn g() { if true { } } }
#[cfg(test)]
mod more;
#[cfg(not(test))]
use crate::i;
"####;
    let source = Source::new("src/x.rs", text);
    let names: Vec<&str> = source
        .code
        .split("crate::")
        .skip(1)
        .map(|rest| &rest[..1])
        .collect();
    assert_eq!(names, ["b", "i"], "{}", source.code);
    assert_eq!(source.code.lines().count(), text.lines().count());
    assert!(
        source.code.contains("fn f<'a>(x: &'a str) -> char {"),
        "{}",
        source.code
    );
}
