//! Random numbers for jitter and request ids. Not for secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static REPLAYED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// 64 random bits, hashed with a new key of the standard library's `RandomState` each time.
#[must_use]
pub fn random() -> u64 {
    REPLAYED
        .get()
        .map_or_else(|| RandomState::new().hash_one(0_u8), next_replayed)
}

/// Makes this thread's random numbers follow from `seed` from now on, so that a single-threaded run can be repeated.
pub fn replay_random(seed: u64) {
    REPLAYED.set(Some(seed));
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next_replayed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    REPLAYED.set(Some(state));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A random number in [0, 1).
#[must_use]
pub fn fraction() -> f64 {
    // 53 bits are exact in a double.
    (random() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A random UUID (RFC 9562, version 4), as in audit ids.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_the_same_numbers_again() {
        let three = |seed| {
            replay_random(seed);
            [random(), random(), random()]
        };
        let first = three(7);
        assert_eq!(first, three(7));
        assert_ne!(first, three(8));
        assert!(first[0] != first[1] && first[1] != first[2]);
        let elsewhere = std::thread::spawn(random).join().unwrap();
        assert_ne!(elsewhere, three(7)[0]);
    }
}
