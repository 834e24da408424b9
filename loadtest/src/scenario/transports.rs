//! `transports`: the same clients and the same changes by polling, long polling or watches. Why watch? The figures answer it: how old is
//! what clients know, and what does it cost? Media types and slow clients are the subject of others.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use super::Scenario;
use super::population::Population;
use super::watch_run::WatchRun;
use super::watch_run::verdicts::LISTS_VERIFIED;
use super::watch_run::window::{MIB_A_SECOND, REQUESTS_A_SECOND, SERVER_CPU, UPSTREAM_CPU};
use crate::cli::{WatchRunFlags, seconds};
use crate::results::Results;
use crate::socket_loop::RATE_MET;

const REQUESTS_OF_ONE: &str = "requests a client and second";
/// Figures of all clients, the name of each for one client, and the factor between their units.
const PER_CLIENT: [(&str, &str, f64); 4] = [
    (MIB_A_SECOND, "bytes a client and second", 1_048_576.0),
    (REQUESTS_A_SECOND, REQUESTS_OF_ONE, 1.0),
    (SERVER_CPU, "server CPU a client and second, µs", 1e4),
    (UPSTREAM_CPU, "upstream CPU a client and second, µs", 1e4),
];

/// How clients learn of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientTransport {
    /// A list every so often.
    Poll,
    /// A watch that the client leaves with its first events; then the next one from the version of the last. The server ends no watch with
    /// an event, so over HTTP/1.1 the client closes the connection, and over HTTP/2 it resets the stream.
    LongPoll,
    /// One watch, an event a line.
    Watch,
    /// One watch, an event a message.
    Websocket,
}

/// The same clients and changes by polling, long polling or watches: the age of what clients know, and what it costs.
#[derive(Debug, Clone, Parser)]
#[command(name = "transports")]
#[command(mut_arg("watchers", |arg| arg.default_value("200")))]
pub struct Transports {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// How clients learn of changes.
    #[arg(long, value_enum, default_value = "watch")]
    pub by: ClientTransport,
    /// Time between two polls of a client, such as 10s.
    #[arg(long, default_value = "1s", value_parser = seconds)]
    pub every: Duration,
}

impl Scenario for Transports {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let watching = &self.setting.watching;
        let is_websocket = self.by == ClientTransport::Websocket;
        ensure!(
            !(is_websocket && (watching.http2 || watching.gzip)),
            "--by websocket cannot be combined with --http2 or --gzip"
        );
        ensure!(!self.every.is_zero(), "--every: more than 0");
        let is_poll = self.by == ClientTransport::Poll;
        let population = Population {
            long_polls: self.by == ClientTransport::LongPoll,
            polls_every: is_poll.then_some(self.every),
            ..Population::of(watching.watchers)
        };
        let mut run = WatchRun::churning("clients", &self.setting, population)?;
        run.swarm_config.websocket = is_websocket;
        run.run(results).await?;
        run.clean().await;
        per_client(results, watching.watchers);
        let requests = results.value(REQUESTS_OF_ONE, 0).unwrap_or(0.0);
        let due = self.every.as_secs_f64().recip();
        // Of those that were sent some may have been refused.
        let lists = results.value(LISTS_VERIFIED, 0).unwrap_or(0.0);
        let all_due = due * self.setting.churning.duration.as_secs_f64() * watching.watchers as f64;
        if is_poll && (requests < due * RATE_MET || lists < all_due * RATE_MET) {
            results.invalid(format!(
                "{requests:.3} polls a client and second of {due:.3}, and {lists} lists of {all_due:.0}: the machine or the server is too slow for this rate"
            ));
        }
        Ok(())
    }
}

fn per_client(results: &mut Results, clients: usize) {
    for (figure, of_one, factor) in PER_CLIENT {
        if let Some(value) = results.value(figure, 0) {
            results.figure(of_one, value * factor / clients.max(1) as f64);
        }
    }
}
