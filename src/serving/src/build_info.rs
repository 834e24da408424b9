//! The version of this build, and the commit that it was built from.

use std::sync::OnceLock;

/// The program's name, as operators and their tools read it.
pub const PROGRAM: &str = "kube-fanout";

/// The version, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Stands for the commit if it was not known at compile time.
const UNKNOWN: &str = "unknown";

static COMMIT: OnceLock<&'static str> = OnceLock::new();

/// Sets the commit. Only the binary is compiled with it, so that a new commit does not cause the library to be compiled again.
/// Only the first call has an effect; `None` and the empty string mean unknown.
pub fn set_commit(commit: Option<&'static str>) {
    let commit = commit.filter(|commit| !commit.is_empty());
    let _: &str = COMMIT.get_or_init(|| commit.unwrap_or(UNKNOWN));
}

/// The abbreviated commit, with the suffix `-dirty` if files differed from it, or `unknown`.
#[must_use]
pub fn commit() -> &'static str {
    COMMIT.get().copied().unwrap_or(UNKNOWN)
}

/// The text that `--version` prints after the program's name: `0.1.0 (1a2b3c4d5e6f)`.
pub fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| match commit() {
        UNKNOWN => format!("{VERSION} (commit {UNKNOWN})"),
        commit => format!("{VERSION} ({commit})"),
    })
}
