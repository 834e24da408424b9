//! Clients that list again and again: when the next list is due, and since when a client knows of a write. They read no clock themselves.

use std::time::Duration;

/// How often a client lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    pub every: Duration,
    /// Delay of the first list, so that the lists of many clients do not come at the same time.
    pub first_after: Duration,
}

/// When the next list of one client is due. Times are nanoseconds since the epoch.
#[derive(Debug)]
pub struct PollClock {
    every_ns: u64,
    due_ns: u64,
}

/// A list that a client has received.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedList {
    pub version: u64,
    /// Fingerprint of its objects.
    pub print: u64,
    /// When it was complete, nanoseconds since the epoch.
    pub at_ns: u64,
}

impl PollClock {
    pub fn begin(polling: Polling, now_ns: u64) -> Self {
        Self {
            every_ns: nanoseconds(polling.every),
            due_ns: now_ns + nanoseconds(polling.first_after),
        }
    }

    /// The time until the next list is due. If it is due now: none, and the one after it becomes the next.
    pub fn wait(&mut self, now_ns: u64) -> Option<Duration> {
        if self.due_ns > now_ns {
            return Some(Duration::from_nanos(self.due_ns - now_ns));
        }
        // Lists that a slow server has made impossible are not made up for.
        self.due_ns = (self.due_ns + self.every_ns).max(now_ns);
        None
    }
}

/// When the client of these lists, which are in the order of their versions, first had one that is as new as `version`. The object may have
/// been written again before.
pub fn known_ns(lists: &[ReceivedList], version: u64) -> Option<u64> {
    let first = lists.partition_point(|list| list.version < version);
    lists.get(first).map(|list| list.at_ns)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_due_at_fixed_times_and_missed_ones_are_left_out() {
        let seconds = Duration::from_secs;
        let polling = Polling {
            every: seconds(10),
            first_after: seconds(3),
        };
        let mut clock = PollClock::begin(polling, 0);
        for (now_s, wait_s) in [
            (0, Some(3)),
            (3, None),
            // A list that took 4 s does not shift the next one.
            (7, Some(6)),
            (14, None),
            (15, Some(8)),
            // Those of 23 s and 33 s have become one, and another one is due at once.
            (36, None),
            (36, None),
            (36, Some(10)),
        ] {
            let wait = clock.wait(nanoseconds(seconds(now_s)));
            assert_eq!(wait, wait_s.map(seconds), "at {now_s} s");
        }
    }

    #[test]
    fn a_write_is_known_with_the_first_list_that_is_as_new() {
        let lists =
            [(10, 100), (14, 200), (14, 300), (20, 400)].map(|(version, at_ns)| ReceivedList {
                version,
                print: 0,
                at_ns,
            });
        for (version, at_ns) in [
            (9, Some(100)),
            (10, Some(100)),
            // Its object may have been written again as 14.
            (11, Some(200)),
            (14, Some(200)),
            (15, Some(400)),
            (20, Some(400)),
            (21, None),
        ] {
            assert_eq!(known_ns(&lists, version), at_ns, "version {version}");
        }
        assert_eq!(known_ns(&[], 1), None);
    }
}
