//! The figures of a moment and of the whole run, and how they are written. Measures nothing itself.

use std::fmt;
use std::time::Duration;

use super::latency::Latencies;
use super::process::ProcessUsage;

/// Everything counted, at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct CounterSample {
    /// Since the churn began.
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

/// What happened between two moments, a second.
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

    /// One line, for logs and pipes.
    pub(super) fn line(&self) -> String {
        format!(
            "{} watches {} -> {}, events/s {} -> {}, latency p50 {} p99 {}, {}/s out, memory {}, CPU {:.0} %",
            DisplayClock(self.elapsed),
            self.upstream_watches,
            DisplayCount(self.watchers as u64),
            DisplayCount::of(self.written.0),
            DisplayCount::of(self.delivered.0),
            DisplayDuration(self.p50),
            DisplayDuration(self.p99),
            DisplayBytes(self.delivered.1),
            DisplayBytes(self.rss_bytes as f64),
            self.cpu,
        )
    }

    /// A table, for a terminal.
    pub(super) fn table(&self) -> Vec<String> {
        let row = |name: &str, upstream: String, downstream: String| {
            format!("  {name:<12}{upstream:>14}{downstream:>16}")
        };
        vec![
            format!(
                "kube-fanout demo  {}  Ctrl-C ends it",
                DisplayClock(self.elapsed)
            ),
            row("", "upstream".into(), "downstream".into()),
            row(
                "watches",
                self.upstream_watches.to_string(),
                DisplayCount(self.watchers as u64).to_string(),
            ),
            row(
                "events/s",
                DisplayCount::of(self.written.0).to_string(),
                DisplayCount::of(self.delivered.0).to_string(),
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
            format!("  delivered   {}", DisplayCount(self.delivered_events)),
            format!(
                "  process     memory {}  CPU {:.0} %  (API server, gateway and watchers)",
                DisplayBytes(self.rss_bytes as f64),
                self.cpu
            ),
        ]
    }
}

/// What the watchers' courses say, compared with what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DemoVerdict {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
    /// Watchers whose events were not the written ones, byte for byte.
    pub(super) differing: u64,
    /// Watchers that would have to list again.
    pub(super) lost_place: u64,
    pub(super) resumed: u64,
    /// Resources whose list differs between gateway and API server.
    pub(super) differing_lists: u64,
    /// Watchers that lacked the newest events when nothing more came.
    pub(super) behind: u64,
    /// How many of them the last of these lacked.
    pub(super) behind_events: u64,
    /// From the last write to the last event.
    pub(super) settled: Duration,
}

impl DemoVerdict {
    /// Whether every watcher got everything once and in order.
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
    begun: &CounterSample,
    all: &CounterSample,
    verdict: &DemoVerdict,
) -> Vec<String> {
    let figures = IntervalFigures::between(begun, all);
    let row = |name: &str, value: String| format!("  {name:<28}{value:>16}");
    let span = |permille| DisplayDuration(all.latencies.permille(permille)).to_string();
    let count = |number: u64| DisplayCount(number).to_string();
    let mut lines = vec![
        format!("closing figures, {} of churn", DisplayClock(all.elapsed)),
        row("upstream watches", count(all.upstream_watches as u64)),
        row("downstream watches", count(all.watchers as u64)),
        row("events written", count(all.written.0)),
        row("events delivered", count(all.delivered.0)),
        row(
            "events delivered/s",
            DisplayCount::of(figures.delivered.0).to_string(),
        ),
        row(
            "bytes delivered",
            DisplayBytes(all.delivered.1 as f64).to_string(),
        ),
        row("latency p50", span(500)),
        row("latency p99", span(990)),
        row("latency max", span(1000)),
        row(
            "memory",
            DisplayBytes(all.usage.rss_bytes as f64).to_string(),
        ),
        row("CPU", format!("{:.0} %", figures.cpu)),
        row("lost", count(verdict.lost)),
        row("doubled", count(verdict.doubled)),
        row("out of order", count(verdict.out_of_order)),
        row("watchers that differ", count(verdict.differing)),
        row("watchers told to relist", count(verdict.lost_place)),
        row("watches taken up again", count(verdict.resumed)),
        row("lists that differ", count(verdict.differing_lists)),
        row(
            "last event behind last write",
            DisplayDuration(Some(verdict.settled)).to_string(),
        ),
    ];
    if verdict.behind > 0 {
        let (watchers, events) = (count(verdict.behind), count(verdict.behind_events));
        lines.push(format!(
            "behind at the end: {watchers} watchers, up to {events} events"
        ));
    }
    lines.push(if verdict.is_sound() {
        "verified: every watcher got every event once, in order, byte for byte".to_owned()
    } else {
        "NOT verified: see the counts above".to_owned()
    });
    lines
}

/// `02:05`, `1:00:00`.
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

/// `1,234,567`.
struct DisplayCount(u64);

impl DisplayCount {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of events is neither negative nor near 2^64"
    )]
    fn of(rate: f64) -> Self {
        Self(rate.round() as u64)
    }
}

impl fmt::Display for DisplayCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// `12.3 MiB`.
struct DisplayBytes(f64);

impl fmt::Display for DisplayBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0;
        for unit in ["B", "KiB", "MiB"] {
            if left < 1024.0 {
                return f.pad(&format!("{left:.1} {unit}"));
            }
            left /= 1024.0;
        }
        f.pad(&format!("{left:.1} GiB"))
    }
}

/// `1.25 ms`; a dash for none.
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
            DisplayCount(1_234_567).to_string(),
            DisplayCount(12).to_string(),
            DisplayBytes(1536.0).to_string(),
            DisplayDuration(Some(Duration::from_micros(1250))).to_string(),
            DisplayClock(hour).to_string(),
        ];
        assert_eq!(seen, ["1,234,567", "12", "1.5 KiB", "1.25 ms", "1:02:05"]);
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
    }
}
