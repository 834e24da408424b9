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

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn the_hash_is_that_of_the_sorted_lines() {
        let lines = |order: [&str; 2]| order.map(str::to_owned).to_vec();
        // printf 'a/x/1\nb/x/2\n' | sha256sum
        assert_eq!(
            digest(lines(["b/x/2\n", "a/x/1\n"])),
            "3d4750f8eb544c9ed65f03db487dc987522e9f29daf8c0a86807db4f87a856e4"
        );
    }
}
