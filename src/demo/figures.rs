//! Computes and formats the figures of an interval and of the whole run, and the verdict. Pure.

use std::fmt;
use std::time::Duration;

use super::latency::Latencies;
use super::process::ProcessUsage;
use crate::numbers::{counted, rounded, separated};

pub(super) const WATCHERS: (&str, &str) = ("watcher", "watchers");

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct CounterSample {
    /// Time since the churn began.
    pub(super) elapsed: Duration,
    pub(super) upstream_watches: usize,
    pub(super) watchers: usize,
    /// Written to the API server: events and bytes.
    pub(super) written: (u64, u64),
    /// Delivered to all watchers: events and bytes.
    pub(super) delivered: (u64, u64),
    pub(super) latencies: Latencies,
    pub(super) usage: ProcessUsage,
}

/// Rates and latencies between two samples.
#[derive(Debug)]
pub(super) struct IntervalFigures {
    elapsed: Duration,
    upstream_watches: usize,
    watchers: usize,
    written: (f64, f64),
    delivered: (f64, f64),
    delivered_events: u64,
    p50: Option<Duration>,
    p99: Option<Duration>,
    rss_bytes: u64,
    cpu: f64,
}

impl IntervalFigures {
    pub(super) fn between(earlier: &CounterSample, now: &CounterSample) -> Self {
        let seconds = now.elapsed.saturating_sub(earlier.elapsed).as_secs_f64();
        let rate = |now: u64, earlier: u64| {
            if seconds > 0.0 {
                now.saturating_sub(earlier) as f64 / seconds
            } else {
                0.0
            }
        };
        let rates =
            |now: (u64, u64), earlier: (u64, u64)| (rate(now.0, earlier.0), rate(now.1, earlier.1));
        let latencies = now.latencies.since(&earlier.latencies);
        let micros = |usage: ProcessUsage| u64::try_from(usage.cpu.as_micros()).unwrap_or(u64::MAX);
        Self {
            elapsed: now.elapsed,
            upstream_watches: now.upstream_watches,
            watchers: now.watchers,
            written: rates(now.written, earlier.written),
            delivered: rates(now.delivered, earlier.delivered),
            delivered_events: now.delivered.0,
            p50: latencies.permille(500),
            p99: latencies.permille(990),
            rss_bytes: now.usage.rss_bytes,
            cpu: rate(micros(now.usage), micros(earlier.usage)) / 10_000.0,
        }
    }

    /// The figures as one line, for logs and pipes.
    pub(super) fn line(&self) -> String {
        format!(
            "{} watches {} -> {}, events/s {} -> {}, latency p50 {} p99 {}, {}/s out, memory {}, CPU {:.0} %",
            DisplayClock(self.elapsed),
            self.upstream_watches,
            separated(self.watchers),
            rounded(self.written.0),
            rounded(self.delivered.0),
            DisplayDuration(self.p50),
            DisplayDuration(self.p99),
            DisplayBytes(self.delivered.1),
            DisplayBytes(self.rss_bytes as f64),
            self.cpu,
        )
    }

    /// The figures as a table, for a terminal.
    pub(super) fn table(&self) -> Vec<String> {
        let row = |name: &str, upstream: String, downstream: String| {
            format!("  {name:<12}{upstream:>14}{downstream:>16}")
        };
        vec![
            format!(
                "kube-fanout demo  {}  Ctrl-C ends the demo",
                DisplayClock(self.elapsed)
            ),
            row("", "upstream".into(), "downstream".into()),
            row(
                "watches",
                self.upstream_watches.to_string(),
                separated(self.watchers),
            ),
            row(
                "events/s",
                rounded(self.written.0),
                rounded(self.delivered.0),
            ),
            row(
                "bytes/s",
                DisplayBytes(self.written.1).to_string(),
                DisplayBytes(self.delivered.1).to_string(),
            ),
            format!(
                "  latency, write to watcher   p50 {}  p99 {}",
                DisplayDuration(self.p50),
                DisplayDuration(self.p99)
            ),
            format!("  delivered   {}", separated(self.delivered_events)),
            format!(
                "  process     memory {}  CPU {:.0} %  (API server, gateway and watchers)",
                DisplayBytes(self.rss_bytes as f64),
                self.cpu
            ),
        ]
    }
}

/// The comparison of what the watchers received with what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DemoVerdict {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
    /// Watchers whose events were not byte for byte those that were written.
    pub(super) differing: u64,
    /// Watchers that were told to list again.
    pub(super) must_relist: u64,
    /// Watches that ended and were resumed. This is not an error.
    pub(super) resumed: u64,
    /// Resources whose list differs between gateway and API server.
    pub(super) differing_lists: u64,
    /// Watchers that lacked the newest events when no more events arrived.
    pub(super) behind: u64,
    /// Largest number of events that one of these watchers lacked.
    pub(super) behind_events: u64,
    /// Time from the last write to the last delivery.
    pub(super) settled: Duration,
}

impl DemoVerdict {
    /// Whether every watcher received every event once and in order.
    pub(super) fn is_sound(&self) -> bool {
        Self {
            resumed: 0,
            settled: Duration::ZERO,
            ..*self
        } == Self::default()
    }
}

/// The closing table: the whole run, and the verdict.
pub(super) fn closing(
    start: &CounterSample,
    end: &CounterSample,
    verdict: &DemoVerdict,
) -> Vec<String> {
    let figures = IntervalFigures::between(start, end);
    let row = |name: &str, value: String| format!("  {name:<28}{value:>16}");
    let span = |permille| DisplayDuration(end.latencies.permille(permille)).to_string();
    let mut lines = vec![
        format!("closing figures, {} of churn", DisplayClock(end.elapsed)),
        row("upstream watches", separated(end.upstream_watches)),
        row("downstream watches", separated(end.watchers)),
        row("events written", separated(end.written.0)),
        row("events delivered", separated(end.delivered.0)),
        row("events delivered/s", rounded(figures.delivered.0)),
        row(
            "bytes delivered",
            DisplayBytes(end.delivered.1 as f64).to_string(),
        ),
        row("latency p50", span(500)),
        row("latency p99", span(990)),
        row("latency max", span(1000)),
        row(
            "memory",
            DisplayBytes(end.usage.rss_bytes as f64).to_string(),
        ),
        row("CPU", format!("{:.0} %", figures.cpu)),
        row("lost", separated(verdict.lost)),
        row("doubled", separated(verdict.doubled)),
        row("out of order", separated(verdict.out_of_order)),
        row("watchers that differ", separated(verdict.differing)),
        row("watchers told to relist", separated(verdict.must_relist)),
        row("watches taken up again", separated(verdict.resumed)),
        row("lists that differ", separated(verdict.differing_lists)),
        row(
            "last event after last write",
            DisplayDuration(Some(verdict.settled)).to_string(),
        ),
    ];
    if verdict.behind > 0 {
        lines.push(format!(
            "behind at the end: {}, up to {}",
            counted(verdict.behind, WATCHERS),
            counted(verdict.behind_events, ("event", "events"))
        ));
    }
    lines.push(if verdict.is_sound() {
        "verified: every watcher got every event once, in order, byte for byte".to_owned()
    } else {
        "NOT verified: see the counts above".to_owned()
    });
    lines
}

/// A duration, displayed as `02:05` or `1:00:00`.
struct DisplayClock(Duration);

impl fmt::Display for DisplayClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds >= 3600 {
            write!(f, "{}:", seconds / 3600)?;
        }
        write!(f, "{:02}:{:02}", seconds / 60 % 60, seconds % 60)
    }
}

/// A length in bytes, displayed as `12.3 MiB`.
struct DisplayBytes(f64);

impl fmt::Display for DisplayBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0;
        for unit in ["B", "KiB", "MiB"] {
            if value < 1024.0 {
                return f.pad(&format!("{value:.1} {unit}"));
            }
            value /= 1024.0;
        }
        f.pad(&format!("{value:.1} GiB"))
    }
}

/// A duration, displayed as `1.25 ms`; a dash for none.
struct DisplayDuration(Option<Duration>);

impl fmt::Display for DisplayDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.pad("-"),
            Some(span) => f.pad(&format!("{:.2} ms", span.as_secs_f64() * 1000.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let hour = Duration::from_secs(3_725);
        let seen = [
            DisplayBytes(1536.0).to_string(),
            DisplayDuration(Some(Duration::from_micros(1250))).to_string(),
            DisplayClock(hour).to_string(),
        ];
        assert_eq!(seen, ["1.5 KiB", "1.25 ms", "1:02:05"]);
    }

    #[test]
    fn a_single_fault_is_enough_for_no_verification() {
        let sound = DemoVerdict {
            resumed: 3,
            ..DemoVerdict::default()
        };
        assert!(sound.is_sound());
        let lost = DemoVerdict { lost: 1, ..sound };
        let none = CounterSample::default();
        let last = closing(&none, &none, &lost).pop();
        assert!(!lost.is_sound() && last.is_some_and(|line| line.starts_with("NOT")));
    }

    #[test]
    fn who_is_behind_at_the_end_has_a_failing_line() {
        let behind = DemoVerdict {
            behind: 1_200,
            behind_events: 2,
            settled: Duration::from_millis(70),
            ..DemoVerdict::default()
        };
        let none = CounterSample::default();
        let text = closing(&none, &none, &behind).join("\n");
        assert!(text.contains("behind at the end: 1,200 watchers, up to 2 events\nNOT"));
        let one = DemoVerdict {
            behind: 1,
            behind_events: 1,
            ..behind
        };
        let text = closing(&none, &none, &one).join("\n");
        assert!(text.contains("behind at the end: 1 watcher, up to 1 event\nNOT"));
    }
}
