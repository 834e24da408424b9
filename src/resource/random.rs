//! Small randomness: jitter and request ids. Not for secrets.

use std::hash::{BuildHasher, RandomState};

/// 64 random bits, from the process's hash seed and a fresh key each time.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// A random number in [0, 1).
#[must_use]
pub fn fraction() -> f64 {
    // 53 bits are exact in a double.
    (random() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A random UUID (RFC 9562, version 4), as audit ids are.
#[must_use]
pub fn random_uuid() -> String {
    let (high, low) = (random(), random());
    let time_low = high >> 32;
    let time_mid = (high >> 16) & 0xffff;
    let time_high = (high & 0x0fff) | 0x4000;
    let clock = (low >> 48) & 0x3fff | 0x8000;
    let node = low & 0xffff_ffff_ffff;
    format!("{time_low:08x}-{time_mid:04x}-{time_high:04x}-{clock:04x}-{node:012x}")
}
