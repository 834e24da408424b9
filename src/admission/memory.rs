//! Compares the process's resident memory with its limit. Only Linux reports it; elsewhere there is no limit.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a reading stays valid; reading costs about 20 µs.
const FRESH: Duration = Duration::from_millis(100);

/// The memory limit. It is soft: allocations between two readings are not refused.
#[derive(Debug)]
pub(super) struct Memory {
    /// Bytes; 0 for no limit.
    max: usize,
    resident: fn() -> Option<usize>,
    last_reading: Mutex<Option<(Instant, bool)>>,
}

impl Memory {
    pub(super) fn new(max: usize) -> Self {
        Self::with_reader(max, resident)
    }

    fn with_reader(max: usize, resident: fn() -> Option<usize>) -> Self {
        Self {
            max,
            resident,
            last_reading: Mutex::new(None),
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        if self.max == 0 {
            return false;
        }
        let mut last_reading = self
            .last_reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match *last_reading {
            Some((at, is_over)) if now.saturating_duration_since(at) < FRESH => is_over,
            _ => {
                let is_over = (self.resident)().is_some_and(|resident| resident > self.max);
                *last_reading = Some((now, is_over));
                is_over
            }
        }
    }
}

/// Resident bytes of this process, shared pages included; `None` if the system does not report them.
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
        assert!(!Memory::with_reader(0, || Some(usize::MAX)).is_over(now));
        assert!(!Memory::with_reader(10, || None).is_over(now));
        assert!(!Memory::with_reader(10, || Some(10)).is_over(now));
        let memory = Memory::with_reader(10, || Some(11));
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
        let resident = resident().expect("Linux reports resident memory");
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
    }
}
