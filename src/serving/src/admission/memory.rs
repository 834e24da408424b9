//! Compares the process's resident memory with its limit. Only Linux reports it; elsewhere there is no limit.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::allocator;

/// What is freed stays resident if its neighbours are in use, and is used again by what comes next. So much beyond what is allocated, in
/// hundredths, counts as in use all the same: it may never be used again.
const TOLERANCE_PERCENT: usize = 15;

/// The process before its first request.
static AT_START: OnceLock<ResidentMemory> = OnceLock::new();

/// How long a reading stays valid; reading costs about 20 µs.
const FRESH: Duration = Duration::from_millis(100);

/// The memory limit. It is soft: allocations between two readings are not refused.
#[derive(Debug)]
pub(super) struct Memory {
    /// Bytes; 0 for no limit.
    max: Mutex<usize>,
    in_use: fn() -> Option<usize>,
    last_reading: Mutex<Option<(Instant, bool)>>,
    /// Whether new requests are refused before the limit is reached.
    is_short: Mutex<bool>,
}

impl Memory {
    pub(super) fn new(max: usize) -> Self {
        // The first reading is the one that later ones are compared with.
        let _ = in_use();
        Self::with_reader(max, in_use)
    }

    fn with_reader(max: usize, in_use: fn() -> Option<usize>) -> Self {
        Self {
            max: Mutex::new(max),
            in_use,
            last_reading: Mutex::new(None),
            is_short: Mutex::new(false),
        }
    }

    fn max(&self) -> usize {
        *self.max.lock()
    }

    pub(super) fn set_max(&self, max: usize) {
        *self.max.lock() = max;
        // The last reading was compared with the old limit.
        *self.last_reading.lock() = None;
    }

    pub(super) fn set_short(&self, is_short: bool) {
        *self.is_short.lock() = is_short;
    }

    /// Whether requests that take much memory are refused.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.max() > 0 && (*self.is_short.lock() || self.is_exceeded(now))
    }

    /// Whether the limit itself is exceeded.
    pub(super) fn is_exceeded(&self, now: Instant) -> bool {
        let max = self.max();
        if max == 0 {
            return false;
        }
        let mut last_reading = self.last_reading.lock();
        match *last_reading {
            Some((at, is_over)) if now.saturating_duration_since(at) < FRESH => is_over,
            _ => {
                let is_over = (self.in_use)().is_some_and(|in_use| in_use > max);
                *last_reading = Some((now, is_over));
                is_over
            }
        }
    }
}

/// Memory of the process, in bytes: what is resident, and what of it is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    /// All of it, shared pages included.
    pub total: usize,
    /// The part that the system can read again from files, most of which is the program.
    pub files: usize,
    /// What the program has allocated; 0 if its allocator does not count.
    pub allocated: usize,
}

impl ResidentMemory {
    /// Reads it; `None` if the system does not report it.
    #[must_use]
    pub fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/status").ok()?;
        Self::parse(&text)
    }

    /// What is in use, if the process was like this at its start.
    fn in_use(self, at_start: Self) -> usize {
        if self.allocated == 0 {
            // The allocator does not count.
            return self.total;
        }
        let own = at_start.total.saturating_sub(at_start.files);
        let used = self.files + own + self.allocated.saturating_sub(at_start.allocated);
        self.total.min(used + used / 100 * TOLERANCE_PERCENT)
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| -> Option<usize> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kilobytes.checked_mul(1 << 10)
        };
        Some(Self {
            total: bytes("VmRSS:")?,
            files: bytes("RssFile:").unwrap_or_default(),
            allocated: allocator::allocated(),
        })
    }
}

/// Resident bytes of this process, shared pages included; `None` if the system does not report them.
#[must_use]
pub fn resident() -> Option<usize> {
    ResidentMemory::read().map(|memory| memory.total)
}

/// Bytes of this process that are in use; `None` if the system does not report them.
#[must_use]
pub fn in_use() -> Option<usize> {
    let now = ResidentMemory::read()?;
    Some(now.in_use(*AT_START.get_or_init(|| now)))
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
            in_use: || Some(1),
            ..memory
        };
        assert!(memory.is_over(now + FRESH / 2));
        assert!(!memory.is_over(now + FRESH));
    }

    #[test]
    fn a_shortage_counts_before_the_limit_is_reached_and_only_if_there_is_one() {
        let now = Instant::now();
        for (max, expected) in [(10, true), (0, false)] {
            let memory = Memory::with_reader(max, || Some(1));
            memory.set_short(true);
            assert_eq!(memory.is_over(now), expected);
            assert!(!memory.is_exceeded(now));
            memory.set_short(false);
            assert!(!memory.is_over(now));
        }
    }

    #[test]
    fn what_was_freed_and_is_still_resident_is_not_in_use() {
        let memory = |[total, files, allocated]: [usize; 3]| ResidentMemory {
            total,
            files,
            allocated,
        };
        let start = memory([200, 120, 50]);
        let in_use = |now| memory(now).in_use(start);
        assert_eq!(in_use([200, 120, 50]), 200);
        // 700 more are allocated, and 15 in a hundred count as never to be used again.
        assert_eq!(in_use([2_000, 120, 750]), 1_035);
        assert_eq!(in_use([950, 120, 750]), 950);
        assert_eq!(
            in_use([2_000, 120, 0]),
            2_000,
            "the allocator does not count"
        );
    }

    #[test]
    fn this_process_has_some_memory_and_not_all_of_it() {
        let resident = resident().expect("Linux reports resident memory");
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        let status = "VmRSS:\t   3000 kB\nRssFile:\t   1000 kB\n";
        let expected = ResidentMemory {
            total: 3_000 << 10,
            files: 1_000 << 10,
            allocated: 0,
        };
        assert_eq!(ResidentMemory::parse(status), Some(expected));
        assert_eq!(ResidentMemory::parse("RssFile: 1000 kB"), None);
    }
}
