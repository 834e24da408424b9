//! Where a name falls between 0 and 1: the same in every gateway, release and process, so that a percentage picks the same names everywhere.

use aws_lc_rs::digest::{SHA256, digest};

/// The place of a key among all keys with the same salt, from 0 up to 1 without 1. It is the first 8 bytes of SHA-256 of the salt, a zero
/// byte and the key, big-endian, divided by 2^64. The keys below a share of `p` are also below every larger share.
#[must_use]
pub fn share(salt: &str, key: &str) -> f64 {
    let hashed = digest(&SHA256, &[salt.as_bytes(), &[0], key.as_bytes()].concat());
    let bytes = hashed.as_ref().first_chunk().copied().unwrap_or_default();
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are fine enough for a share"
    )]
    let place = (u64::from_be_bytes(bytes) >> 11) as f64;
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    let whole = (1_u64 << 53) as f64;
    place / whole
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [(&str, &str, f64); 3] = [
        ("", "node-1", 0.9155067154924619),
        ("a", "node-1", 0.22176897624254213),
        ("", "system:node:n-42", 0.7202676019181682),
    ];

    #[test]
    fn places_are_those_of_the_documented_hash() {
        // python3 -c 'import hashlib; print(int.from_bytes(hashlib.sha256(b"a\0node-1").digest()[:8]) / 2**64)'
        for (salt, key, place) in SAMPLES {
            assert!((share(salt, key) - place).abs() < 1e-12, "{salt} {key}");
        }
    }

    #[test]
    fn a_share_of_names_is_close_to_what_is_asked() {
        for (percent, lowest, highest) in [(1.0, 30, 70), (10.0, 430, 570), (50.0, 2_360, 2_640)] {
            let names = (0..5_000).map(|node| format!("node-{node}"));
            let drawn = names
                .filter(|name| share("", name) * 100.0 < percent)
                .count();
            assert!((lowest..=highest).contains(&drawn), "{percent} %: {drawn}");
        }
    }
}
