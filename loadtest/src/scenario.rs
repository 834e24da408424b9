//! The scenarios. Each is a type that holds its flags and implements [`Scenario`].

pub mod drain;
pub mod forwarded;
pub mod herd;
pub mod hostile;
pub mod identities;
pub mod joiners;
pub mod kubelets;
pub mod node_selectors;
pub mod overload;
pub mod population;
pub mod quiet_end;
pub mod reconnect_storm;
pub mod rolling;
pub mod slow;
pub mod stalled;
pub mod start;
pub mod steady;
pub mod tax;
pub mod transports;
pub mod watch_run;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::cli::{ServerFlags, WatchFlags, WatchRunFlags};
use crate::command::{Entry, block_on};
use crate::process::raise_open_files;
use crate::results::Results;
use crate::swarm::SwarmConfig;
use crate::target::Target;
use population::Population;
use watch_run::WatchRun;

/// A load test. The fields of the type are its flags.
pub trait Scenario: Parser {
    /// Runs the scenario and adds figures, faults and notes to `results`.
    /// Wrong answers of the server are faults in the results, not errors.
    async fn run(&self, results: &mut Results) -> Result<()>;
}

/// Says in the log what the scenario does from now on.
pub fn phase(text: &str) {
    eprintln!("phase: {text}");
}

/// Runs a scenario. Each of its waits is bounded; the runner bounds the whole.
pub async fn play<S: Scenario>(scenario: &S) -> Result<Results> {
    let mut results = Results::new(S::command().get_name());
    scenario.run(&mut results).await?;
    Ok(results)
}

/// The subcommand of a scenario. With `--json` it also writes the figures to a file.
pub const fn entry<S: Scenario>() -> Entry {
    Entry {
        command: || {
            let json = clap::arg!(--json <FILE> "Also write the figures to this file");
            S::command().arg(json.value_parser(clap::value_parser!(PathBuf)))
        },
        execute: |matches| {
            let results = block_on(play(&S::from_arg_matches(matches)?))?;
            let json = matches.get_one("json").map(PathBuf::as_path);
            results.publish(json)
        },
    }
}

/// The two servers that the flags name: the one under test, and the one for reference and writes.
pub fn targets(server: &ServerFlags) -> Result<(Target, Target)> {
    let target = Target::new(
        &server.target,
        server.token.as_deref(),
        server.ca.as_deref(),
    )?;
    let reference = match &server.reference {
        None => target.clone(),
        Some(url) => Target::new(
            url,
            server.token.as_deref(),
            server.reference_ca.as_deref().or(server.ca.as_deref()),
        )?,
    };
    Ok((target, reference))
}

/// How the flags wire a swarm of watchers.
pub fn swarm_config(
    server: &ServerFlags,
    watching: Option<&WatchFlags>,
    target: Target,
) -> SwarmConfig {
    let streams_per_connection = watching
        .filter(|watching| watching.http2)
        .map(|watching| watching.streams_per_connection);
    let target = match watching {
        Some(watching) if watching.gzip => target.compressing(),
        _ => target,
    };
    SwarmConfig {
        threads: server.threads,
        streams_per_connection,
        source: server.source,
        ..SwarmConfig::new(target)
    }
}

/// Connections that the watchers need.
pub fn connections(watching: &WatchFlags) -> usize {
    let streams = watching.http2.then_some(watching.streams_per_connection);
    connections_of(watching.watchers, streams)
}

/// Connections that this many watchers need, over HTTP/2 with this many streams on each.
pub fn connections_of(watchers: usize, streams_per_connection: Option<usize>) -> usize {
    watchers.div_ceil(streams_per_connection.unwrap_or(1).max(1))
}

impl<'a> WatchRun<'a> {
    /// A run of `population` against the server under test, as the flags have it.
    pub fn of(
        name: &'a str,
        server: &'a ServerFlags,
        population: Population,
        watching: &WatchFlags,
    ) -> Result<Self> {
        raise_open_files(connections(watching))?;
        let (target, reference) = targets(server)?;
        Ok(Self {
            name,
            swarm_config: swarm_config(server, Some(watching), target),
            reference,
            path: &server.path,
            churn: None,
            population,
            is_mixed: false,
            is_rolling: false,
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
            server_pid: server.server_pid,
            upstream_pid: server.upstream_pid,
        })
    }

    pub fn churning(
        name: &'a str,
        setting: &'a WatchRunFlags,
        population: Population,
    ) -> Result<Self> {
        let WatchRunFlags {
            server,
            watching,
            churning,
        } = setting;
        let run = Self::of(name, server, population, watching)?;
        Ok(Self {
            churn: steady::churn(churning, &run.reference, run.path),
            warm_up: churning.warm_up,
            duration: churning.duration,
            ..run
        })
    }

    pub async fn clean(&self) {
        if let Some(churn) = &self.churn {
            churn.clean().await;
        }
    }
}

#[cfg(test)]
mod tests;
