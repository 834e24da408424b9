//! Random numbers for jitter. Not for secrets.

/// 64 random bits.
#[must_use]
pub fn random() -> u64 {
    fastrand::u64(..)
}

/// Makes this thread's random numbers follow from `seed` from now on, so that a single-threaded run can be repeated.
pub fn replay_random(seed: u64) {
    fastrand::seed(seed);
}

/// A random number in [0, 1).
#[must_use]
pub fn fraction() -> f64 {
    fastrand::f64()
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
