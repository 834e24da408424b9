//! `steady`: many watchers under steady churn; with `--baseline` the same swarm against a bare socket loop afterwards.

use anyhow::{Context, Result};
use clap::Parser;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::population::Population;
use super::watch_run::window::{
    EVENT_LEN, EVENTS_A_SECOND, SERVER_PER_EVENT, SERVER_USER_PER_EVENT, UPSTREAM_EVENTS_A_SECOND,
};
use super::watch_run::{WatchRun, spare};
use super::{Scenario, connections_of};
use crate::cli::{ChurnFlags, WatchRunFlags};
use crate::process::raise_open_files;
use crate::report::target::{RATES_APART_MAX, RATES_DIFFER};
use crate::results::Results;
use crate::socket_loop::RATE_MET;
use crate::target::Target;
use crate::writer::Churn;

/// Many watchers under steady churn: no event lost or duplicated, order kept; latency and CPU per event.
#[derive(Debug, Clone, Parser)]
#[command(name = "steady")]
pub struct Steady {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Afterwards run the same swarm against a bare socket loop, and report the ratio; with TLS if the target has it.
    #[arg(long)]
    pub baseline: bool,
    /// Watch from different versions, one watch in four without bookmarks, and send one write in ten through the server under test.
    #[arg(long)]
    pub mixed: bool,
}

impl Scenario for Steady {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let population = Population::of(self.setting.watching.watchers);
        let mut run = WatchRun::churning("target", &self.setting, population)?;
        run.is_mixed = self.mixed;
        if let Some(churn) = &mut run.churn {
            churn.also = self.mixed.then(|| run.swarm_config.target.clone());
        }
        run.run(results).await?;
        run.clean().await;
        if self.baseline {
            against_socket_loop(&run, results).await?;
        }
        Ok(())
    }
}

/// The writer that the flags describe, if they ask for one.
pub fn churn(flags: &ChurnFlags, target: &Target, path: &str) -> Option<Churn> {
    (flags.write_rate > 0.0).then(|| writer(flags, target, path))
}

/// The writer that the flags describe.
pub fn writer(flags: &ChurnFlags, target: &Target, path: &str) -> Churn {
    Churn {
        objects: flags.objects.max(1),
        object_len: flags.object_size,
        rate: flags.write_rate,
        ..Churn::new(target, path, "cm")
    }
}

/// The same watchers, event rate and event size against the bare loop, with TLS if the server under test has it.
async fn against_socket_loop(run: &WatchRun<'_>, results: &mut Results) -> Result<()> {
    let watchers = run.population.watchers;
    let rate = results.value(EVENTS_A_SECOND, 0).unwrap_or(0.0) / watchers.max(1) as f64;
    let event_len = results.value(EVENT_LEN, 0).unwrap_or(1_024.0);
    let rate = rate.max(1.0);
    let life = run.warm_up + run.duration + spare(watchers);
    let arguments = [
        ("--rate", format!("{rate:.2}")),
        ("--event-size", format!("{event_len:.0}")),
        ("--duration", life.as_secs().to_string()),
    ];
    let tls = run.swarm_config.target.tls.is_some();
    let (socket_loop, target) = start_socket_loop(&arguments, tls).await?;
    let mut swarm_config = run.swarm_config.clone();
    swarm_config.target = target.clone();
    raise_open_files(connections_of(
        watchers,
        swarm_config.streams_per_connection,
    ))?;
    let baseline = WatchRun {
        name: "socket loop",
        swarm_config,
        reference: target,
        churn: None,
        server_pid: socket_loop.id(),
        upstream_pid: None,
        ..run.clone()
    };
    baseline.run(results).await?;
    let achieved = results.value(UPSTREAM_EVENTS_A_SECOND, 1).unwrap_or(0.0);
    if achieved < rate * RATE_MET {
        results.invalid(format!(
            "socket loop: {achieved:.1} events a second, asked for {rate:.1}: the machine is too slow for this rate"
        ));
    }
    compare(results);
    Ok(())
}

/// The target's cost as a multiple of the floor's, if both had the same rates.
fn compare(results: &mut Results) {
    let agree = |row: &&str| {
        let pair = results.value(row, 0).zip(results.value(row, 1));
        pair.is_some_and(|(a, b)| (a - b).abs() <= a.max(b) * RATES_APART_MAX)
    };
    if [UPSTREAM_EVENTS_A_SECOND, EVENTS_A_SECOND]
        .iter()
        .all(agree)
    {
        results.ratios(SERVER_PER_EVENT, 1);
        results.ratios(SERVER_USER_PER_EVENT, 1);
    } else {
        results.note(RATES_DIFFER.to_owned());
    }
}

/// Starts this program as a socket loop, killed when dropped; returns it with its target.
async fn start_socket_loop(arguments: &[(&str, String)], tls: bool) -> Result<(Child, Target)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("socket-loop");
    for (flag, value) in arguments {
        command.args([flag, value.as_str()]);
    }
    if tls {
        command.arg("--tls");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn()?;
    let output = child.stdout.take().context("invariant: stdout is piped")?;
    // The loop prints its lines at once or ends; both end these reads.
    let mut lines = BufReader::new(output).lines();
    let url = lines.next_line().await?;
    let url = url.context("the socket loop has ended")?;
    let mut certificate = String::new();
    while tls && !certificate.ends_with("-----END CERTIFICATE-----\n") {
        let line = lines.next_line().await?;
        certificate += &line.context("no certificate of the socket loop")?;
        certificate.push('\n');
    }
    let target = Target::trusting(&url, certificate.as_bytes())?;
    Ok((child, target))
}

#[cfg(test)]
mod tests {
    //! Costs are compared at equal rates only.

    use super::*;

    fn results(rates: [f64; 2]) -> Results {
        let mut results = Results::new("steady");
        for (rate, cpu) in rates.into_iter().zip([3.0, 2.0]) {
            results.column("socket loop");
            results.figure(UPSTREAM_EVENTS_A_SECOND, rate);
            results.figure(EVENTS_A_SECOND, rate * 10.0);
            results.figure(SERVER_PER_EVENT, cpu);
        }
        compare(&mut results);
        results
    }

    #[test]
    fn a_loop_that_did_less_is_no_floor() {
        const RATIO: &str = "server CPU per delivered event / socket loop";
        assert_eq!(results([100.0, 97.0]).value(RATIO, 0), Some(1.5));
        let unequal = results([100.0, 80.0]);
        assert_eq!(unequal.value(RATIO, 0), None);
        assert!(unequal.to_string().contains("no ratio: rates differ"));
    }
}
