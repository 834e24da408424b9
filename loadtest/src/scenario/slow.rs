//! `slow`: ways to read slowly, each beside the same run without it. Are the other watchers delayed, and do the slow ones recover? Three of
//! them are those of Kubernetes' BenchmarkSlowWatcherTax (kubernetes/kubernetes#141450).

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use super::population::Population;
use super::{Scenario, tax};

use super::watch_run::WatchRun;
use crate::cli::{ChurnFlags, WatchRunFlags, seconds};
use crate::metrics::Metrics;
use crate::recorder::{LEFT, Recorder};
use crate::results::Results;
use crate::swarm::pace::{ReadPace, SLOW_BUFFER_LEN, Slowness};

/// The API server's count of watches that it has terminated.
const TERMINATED: &str = "apiserver_terminated_watchers_total";
/// Reads a second of a client that reads slowly.
const SLOW_READS: f64 = 10.0;
/// Length of the pieces of a client that trickles, bytes.
const TRICKLE_LEN: usize = 2_048;
/// Window of every HTTP/2 stream, bytes: the protocol's default, so that unread data soon waits at the server.
const STREAM_WINDOW_LEN: u32 = 65_535;
/// Length of an event besides its object.
const EVENT_BESIDES_LEN: usize = 40;

/// Ways to read slowly, each beside the same run without: are the other watchers delayed, do the slow ones recover?
#[derive(Debug, Clone, Parser)]
#[command(name = "slow")]
pub struct Slow {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// How some watchers are slow; several kinds are played one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        SlowKind::Renews, SlowKind::NeverReads, SlowKind::RenewsUnread,
        SlowKind::ReadsSlowly, SlowKind::Pauses, SlowKind::Trickles, SlowKind::Http2, SlowKind::Half,
    ])]
    pub kind: Vec<SlowKind>,
    /// How long a watcher that renews stays on a stream, such as 0.5s.
    #[arg(long, default_value = "0.5s", value_parser = seconds)]
    pub renews_every: Duration,
}

/// How slow watchers are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SlowKind {
    /// One in a hundred reads, and now and then leaves and watches again from the newest version: the cost of that alone.
    #[value(alias = "draining-companion")]
    Renews,
    /// One in a hundred does not read at all.
    #[value(alias = "stalled-once")]
    NeverReads,
    /// One in a hundred does not read at all, and now and then leaves and watches again from the newest version.
    #[value(alias = "stalled-reconnecting")]
    RenewsUnread,
    /// One in ten reads a tenth of the bytes.
    ReadsSlowly,
    /// One in ten reads for a second and pauses for four.
    Pauses,
    /// One in a hundred reads small pieces, as fast as they arrive.
    Trickles,
    /// One stream in a hundred is not read, on HTTP/2 connections that others read from.
    Http2,
    /// Every second one does not read at all.
    Half,
}

impl Scenario for Slow {
    async fn run(&self, results: &mut Results) -> Result<()> {
        for kind in &self.kind {
            play(self, *kind, results).await?;
        }
        Ok(())
    }
}

/// Plays one kind: a column without slow watchers, and one with them.
async fn play(flags: &Slow, kind: SlowKind, results: &mut Results) -> Result<()> {
    let mut setting = flags.setting.clone();
    setting.watching.http2 |= kind == SlowKind::Http2;
    let watchers = setting.watching.watchers;
    let kind_name = kind
        .to_possible_value()
        .map_or(String::new(), |value| value.get_name().to_owned());
    let (without, with) = (format!("{kind_name}: none"), format!("{kind_name}: some"));
    let population = Population {
        excluded: kind.count(watchers),
        ..Population::of(watchers)
    };
    let mut run = WatchRun::churning(&without, &setting, population)?;
    run.swarm_config.stream_window = STREAM_WINDOW_LEN;
    let of_others = run_counted(&run, results).await?;
    tax::late(results, &of_others.latency);
    run.name = &with;
    run.population.slowness = Some(Slowness {
        pace: kind.pace(&setting.churning),
        receive_buffer: SLOW_BUFFER_LEN,
        renews_every: kind.renews().then_some(flags.renews_every),
    });
    let beside_slow = run_counted(&run, results).await?;
    tax::late(results, &beside_slow.latency);
    tax::tax(results, &of_others.latency, &beside_slow.latency);
    if kind.renews() {
        let renewed = beside_slow.ends.get(LEFT).copied().unwrap_or(0);
        results.figure("streams begun anew", renewed as f64);
        if renewed == 0 {
            results.fault(format!("{with}: no stream was renewed: nothing was proven"));
        }
    }
    run.clean().await;
    Ok(())
}

/// Plays a run; counts the watches that the API server has terminated in it because their clients were too slow. Behind a gateway there
/// should be none. The embedded API server has no such counter.
async fn run_counted(run: &WatchRun<'_>, results: &mut Results) -> Result<Recorder> {
    let terminated = async || {
        let metrics = Metrics::read(run.reference.clone()).await?;
        Ok::<_, anyhow::Error>(metrics.map(|metrics| metrics.sum(TERMINATED)))
    };
    let before = terminated().await?;
    let recorder = run.run(results).await?;
    if let (Some(before), Some(after)) = (before, terminated().await?) {
        results.figure("watches given up by the API server", after - before);
    }
    Ok(recorder)
}

impl SlowKind {
    /// The number of slow watchers.
    fn count(self, watchers: usize) -> usize {
        let one_in = match self {
            Self::Renews | Self::NeverReads | Self::RenewsUnread | Self::Trickles | Self::Http2 => {
                100
            }
            Self::ReadsSlowly | Self::Pauses => 10,
            Self::Half => 2,
        };
        (watchers / one_in).max(1)
    }

    fn renews(self) -> bool {
        matches!(self, Self::Renews | Self::RenewsUnread)
    }

    fn pace(self, churning: &ChurnFlags) -> ReadPace {
        let event_len = (churning.object_size + EVENT_BESIDES_LEN) as f64;
        let bytes_a_second = (churning.write_rate * event_len).max(1.0);
        match self {
            Self::Renews => ReadPace::Freely,
            Self::NeverReads | Self::RenewsUnread | Self::Http2 | Self::Half => ReadPace::Never,
            Self::ReadsSlowly => ReadPace::Pieces {
                len: (bytes_a_second / 10.0 / SLOW_READS) as usize,
                every: Duration::from_secs_f64(1.0 / SLOW_READS),
            },
            Self::Pauses => ReadPace::Spells {
                reads: Duration::from_secs(1),
                rests: Duration::from_secs(4),
            },
            Self::Trickles => ReadPace::Pieces {
                len: TRICKLE_LEN,
                every: Duration::from_secs_f64(TRICKLE_LEN as f64 / bytes_a_second),
            },
        }
    }
}
