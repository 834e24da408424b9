//! The hash that stores are compared by.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest as hash};

/// SHA-256 of the sorted lines `namespace/name/resourceVersion`, as the client-go program computes it.
pub fn digest(mut lines: Vec<String>) -> String {
    lines.sort_unstable();
    let sum = hash(&SHA256, lines.concat().as_bytes());
    let mut text = String::new();
    for byte in sum.as_ref() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
