//! `slow`: six ways to be slow, each played beside the same run without it: do the others notice, and do the slow get there in the end?

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use super::crowd::Crowd;
use super::watch_run::WatchRun;
use super::watch_run::window::LATENCY_P99;
use super::{connections, wiring};
use crate::cli::players::{Slow, SlowKind};
use crate::cli::{Churning, Watching};
use crate::process::raise_open_files;
use crate::sheet::Sheet;
use crate::swarm::pace::{Pace, Slowness};

/// Reads a second of those that read slowly.
const SLOW_READS: f64 = 10.0;
/// Pieces that trickle, bytes.
const TRICKLE_LEN: usize = 2_048;
/// Window of every HTTP/2 stream, bytes: the protocol's own, so that what is not read soon waits at the server.
const STREAM_WINDOW_LEN: u32 = 65_535;
/// What an event is longer than its object.
const EVENT_BESIDES_LEN: usize = 40;

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Slow) -> Result<Sheet> {
    let mut sheet = Sheet::new("slow");
    for (number, kind) in flags.kind.iter().enumerate() {
        play(flags, *kind, number * 2, &mut sheet).await?;
    }
    Ok(sheet)
}

/// One kind of slowness: a column without it, and one with it.
async fn play(flags: &Slow, kind: SlowKind, column: usize, sheet: &mut Sheet) -> Result<()> {
    let watching = Watching {
        http2: flags.watching.http2 || kind == SlowKind::Http2,
        ..flags.watching.clone()
    };
    raise_open_files(connections(&watching))?;
    let kind_name = kind
        .to_possible_value()
        .map_or(String::new(), |value| value.get_name().to_owned());
    let (without, with) = (format!("{kind_name}: none"), format!("{kind_name}: some"));
    let crowd = Crowd {
        apart: kind.count(watching.watchers),
        ..Crowd::of(watching.watchers)
    };
    let mut run = WatchRun::of(&without, &flags.server, crowd, &watching)?;
    run = run.churning(&flags.churning);
    run.wiring = wiring(&flags.server, Some(&watching), run.wiring.target.clone());
    run.wiring.stream_window = Some(STREAM_WINDOW_LEN);
    run.run(sheet).await?;
    run.name = &with;
    run.crowd.slowness = Some(Slowness {
        pace: kind.pace(&flags.churning),
        receive_buffer: flags.receive_buffer,
    });
    run.run(sheet).await?;
    run.clean(&flags.churning).await;
    if let (Some(a), Some(b)) = (
        sheet.value(LATENCY_P99, column),
        sheet.value(LATENCY_P99, column + 1),
    ) {
        sheet.figure("p99 of the others / without the slow", b / a.max(1e-3));
    }
    Ok(())
}

impl SlowKind {
    /// How many of all are slow.
    fn count(self, watchers: usize) -> usize {
        let one_in = match self {
            Self::NeverReads | Self::Trickles | Self::Http2 => 100,
            Self::ReadsSlowly | Self::Pauses => 10,
            Self::Half => 2,
        };
        (watchers / one_in).max(1)
    }

    fn pace(self, churning: &Churning) -> Pace {
        let event_len = (churning.object_size + EVENT_BESIDES_LEN) as f64;
        let bytes_a_second = (churning.write_rate * event_len).max(1.0);
        match self {
            Self::NeverReads | Self::Http2 | Self::Half => Pace::Never,
            Self::ReadsSlowly => Pace::Pieces {
                len: (bytes_a_second / 10.0 / SLOW_READS) as usize,
                every: Duration::from_secs_f64(1.0 / SLOW_READS),
            },
            Self::Pauses => Pace::Spells {
                reads: Duration::from_secs(1),
                rests: Duration::from_secs(4),
            },
            Self::Trickles => Pace::Pieces {
                len: TRICKLE_LEN,
                every: Duration::from_secs_f64(TRICKLE_LEN as f64 / bytes_a_second),
            },
        }
    }
}
