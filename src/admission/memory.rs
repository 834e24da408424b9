//! How much memory the process has resident, looked at seldom. Linux alone tells; elsewhere there is no bound.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What is known for so long need not be read again (some 20 µs).
const FRESH: Duration = Duration::from_millis(100);

/// A soft bound: nothing is refused for what is allocated between two looks.
#[derive(Debug)]
pub(super) struct Memory {
    /// Bytes; 0 for no bound.
    max: usize,
    resident: fn() -> Option<usize>,
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Memory {
    pub(super) fn new(max: usize) -> Self {
        Self::seen_by(max, resident)
    }

    fn seen_by(max: usize, resident: fn() -> Option<usize>) -> Self {
        Self {
            max,
            resident,
            seen: Mutex::new(None),
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        if self.max == 0 {
            return false;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((at, is_over)) if now.saturating_duration_since(at) < FRESH => is_over,
            _ => {
                let is_over = (self.resident)().is_some_and(|resident| resident > self.max);
                *seen = Some((now, is_over));
                is_over
            }
        }
    }
}

/// Resident bytes of this process, shared pages included.
#[must_use]
pub fn resident() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_holds_for_a_while() {
        let now = Instant::now();
        assert!(!Memory::seen_by(0, || Some(usize::MAX)).is_over(now));
        assert!(!Memory::seen_by(10, || None).is_over(now));
        assert!(!Memory::seen_by(10, || Some(10)).is_over(now));
        let memory = Memory::seen_by(10, || Some(11));
        assert!(memory.is_over(now));
        let memory = Memory {
            resident: || Some(1),
            ..memory
        };
        assert!(memory.is_over(now + FRESH / 2));
        assert!(!memory.is_over(now + FRESH));
    }

    #[test]
    fn this_process_has_some_memory_and_not_all_of_it() {
        let resident = resident().expect("linux tells");
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
    }
}
