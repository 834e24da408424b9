//! When an event arrived, and how old it was by then.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// The age of a write, in microseconds. Ages of more than 71 minutes count as that. It takes four bytes, because each event of a history
/// has room for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteAge(NonZeroU32);

impl From<Duration> for WriteAge {
    fn from(age: Duration) -> Self {
        let micros = u32::try_from(age.as_micros()).unwrap_or(u32::MAX);
        Self(NonZeroU32::new(micros).unwrap_or(NonZeroU32::MIN))
    }
}

impl From<WriteAge> for Duration {
    fn from(age: WriteAge) -> Self {
        Self::from_micros(age.0.get().into())
    }
}

/// When an event arrived from upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its bytes arrived; of several events that were published together, those of the first one.
    pub at: Instant,
    /// How long before that it was written; known of few events.
    pub age: Option<WriteAge>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_kept_to_the_microsecond_and_is_never_none() {
        for (given, kept) in [
            (Duration::ZERO, Duration::from_micros(1)),
            (Duration::from_nanos(1_999), Duration::from_micros(1)),
            (Duration::from_millis(1_500), Duration::from_millis(1_500)),
            (
                Duration::from_secs(86_400),
                Duration::from_micros(u32::MAX.into()),
            ),
        ] {
            assert_eq!(Duration::from(WriteAge::from(given)), kept);
        }
        assert_eq!(size_of::<Option<WriteAge>>(), 4);
    }
}
