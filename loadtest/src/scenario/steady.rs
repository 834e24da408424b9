//! `steady`: many watchers under steady churn; with `--baseline` the same swarm against a bare socket loop afterwards.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::population::Population;
use super::watch_run::window::{
    EVENT_LEN, EVENTS_A_SECOND, LATENCY_P50, LATENCY_P99, SERVER_PER_EVENT, SERVER_USER_PER_EVENT,
    UPSTREAM_EVENTS_A_SECOND,
};
use super::watch_run::{WatchRun, spare};
use super::{Scenario, connections_of};
use crate::cli::{ChurnFlags, WatchRunFlags};
use crate::process::raise_open_files;
use crate::report::number::quantity;
use crate::report::target::RATES_APART_MAX;
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
    fn time_limit(&self) -> Duration {
        self.setting.time_limit() * (1 + u32::from(self.baseline))
    }

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

/// A column with the target's cost compared with the floor, if both had the same rates.
fn compare(results: &mut Results) {
    let both =
        |results: &Results, row: &str| Some((results.value(row, 0)?, results.value(row, 1)?));
    let rates = [UPSTREAM_EVENTS_A_SECOND, EVENTS_A_SECOND].map(|row| both(results, row));
    let agree = |(a, b): (f64, f64)| (a - b).abs() <= a.max(b) * RATES_APART_MAX;
    if !rates.into_iter().all(|pair| pair.is_some_and(agree)) {
        results.note("no ratio: rates differ".to_owned());
        return;
    }
    let costs = [SERVER_PER_EVENT, SERVER_USER_PER_EVENT].map(|row| (row, both(results, row)));
    let (p50, p99) = (both(results, LATENCY_P50), both(results, LATENCY_P99));
    results.column("beyond the loop");
    for (row, cost) in costs {
        let Some((target, floor)) = cost.filter(|(_, floor)| *floor > 0.0) else {
            continue;
        };
        let ratio = target / floor;
        let row = quantity(row);
        results.figure(&format!("{row} / socket loop"), ratio);
        results.note(format!(
            "{row} is {ratio:.2} times that of the bare socket loop"
        ));
    }
    for (row, pair) in [
        ("latency added p50, ms", p50),
        ("latency added p99, ms", p99),
    ] {
        if let Some((target, floor)) = pair {
            results.figure(row, target - floor);
        }
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
            results.column("x");
            results.figure(UPSTREAM_EVENTS_A_SECOND, rate);
            results.figure(EVENTS_A_SECOND, rate * 10.0);
            results.figure(SERVER_PER_EVENT, cpu);
            results.figure(LATENCY_P50, 1.0);
        }
        compare(&mut results);
        results
    }

    #[test]
    fn a_loop_that_did_less_is_no_floor() {
        const RATIO: &str = "server CPU per delivered event / socket loop";
        assert_eq!(results([100.0, 97.0]).value(RATIO, 2), Some(1.5));
        let unequal = results([100.0, 80.0]);
        assert_eq!(unequal.value(RATIO, 2), None);
        assert!(unequal.to_string().contains("no ratio: rates differ"));
    }
}
