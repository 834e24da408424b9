//! The scenarios: each starts swarms, orders them about, and fills a results.

pub mod burst;
pub mod drain;
pub mod herd;
pub mod hostile;
pub mod idle;
pub mod informers;
pub mod joiners;
pub mod node_selectors;
pub mod overload;
pub mod population;
pub mod quiet_end;
pub mod rate;
pub mod reconnect_storm;
pub mod slow;
pub mod stalled;
pub mod start;
pub mod steady;
pub mod tax;
pub mod watch_run;
pub mod workers;

use std::time::Duration;

use anyhow::Result;

use crate::cli::{ChurnFlags, ServerFlags, WatchFlags, WatchRunFlags};
use crate::process::raise_open_files;
use crate::swarm::{Accept, SwarmConfig};
use crate::target::Target;
use population::Population;
use watch_run::WatchRun;

/// The two servers that the flags name: the one under test, and the one for reference and writes.
///
/// # Errors
/// If a URL or a file is wrong.
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
    SwarmConfig {
        target,
        threads: server.threads,
        streams_per_connection,
        websocket: false,
        accept: Accept::Json,
        stream_window: None,
        impatient: false,
        source: server.source,
    }
}

/// Connections that this process' share of the watchers needs.
pub fn connections(watching: &WatchFlags) -> usize {
    let streams = watching.http2.then_some(watching.streams_per_connection);
    let share = watching.watchers.div_ceil(watching.processes.max(1));
    connections_of(share, streams)
}

/// Connections that so many watchers need, over HTTP/2 with so many streams on each.
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
            processes: watching.processes,
            server,
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
            server_pid: server.server_pid,
            upstream_pid: server.upstream_pid,
        })
    }

    /// The same under churn.
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

    /// Deletes what was written, unless it shall stay.
    pub async fn clean(&self, flags: &ChurnFlags) {
        if let Some(churn) = self.churn.as_ref().filter(|_| !flags.keep_objects) {
            churn.clean().await;
        }
    }
}

#[cfg(test)]
mod tests;
