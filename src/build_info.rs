//! Which build this is: the version of the crate, and the commit that it was built from.

use std::sync::OnceLock;

/// Of the crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a build says whose commit nobody told the compiler.
const UNKNOWN: &str = "unknown";

static COMMIT: OnceLock<&'static str> = OnceLock::new();

/// Names the commit. Only the binary is compiled with it, so that a commit that changes nothing else does not compile the library
/// again. The first call counts; `None` and the empty text mean unknown.
pub fn set_commit(commit: Option<&'static str>) {
    let commit = commit.filter(|commit| !commit.is_empty());
    let _: &str = COMMIT.get_or_init(|| commit.unwrap_or(UNKNOWN));
}

/// Abbreviated, with `-dirty` behind it if files differed from the commit; `unknown` if it is.
#[must_use]
pub fn commit() -> &'static str {
    COMMIT.get().copied().unwrap_or(UNKNOWN)
}

/// What `--version` prints behind the program's name: `0.1.0 (1a2b3c4d5e6f)`.
pub fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| match commit() {
        UNKNOWN => format!("{VERSION} (commit {UNKNOWN})"),
        commit => format!("{VERSION} ({commit})"),
    })
}
