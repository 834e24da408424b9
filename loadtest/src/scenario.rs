//! The scenarios: each starts swarms, orders them about, and fills a sheet.

pub mod herd;
pub mod idle;
pub mod informers;
pub mod stalled;
pub mod steady;
pub mod watch_run;

use anyhow::Result;

use crate::cli::{Server, Watching};
use crate::swarm::Wiring;
use crate::target::Target;

/// The two servers that the flags name: the one under test, and the one for reference and writes.
///
/// # Errors
/// If a URL or a file is wrong.
pub fn targets(server: &Server) -> Result<(Target, Target)> {
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
pub fn wiring(server: &Server, watching: Option<&Watching>, target: Target) -> Wiring {
    let streams_per_connection = watching
        .filter(|watching| watching.http2)
        .map(|watching| watching.streams_per_connection);
    Wiring {
        target,
        threads: server.threads,
        streams_per_connection,
        source: server.source,
    }
}

/// Connections that a swarm of watchers needs.
pub fn connections(watching: &Watching) -> usize {
    if watching.http2 {
        watching
            .watchers
            .div_ceil(watching.streams_per_connection.max(1))
    } else {
        watching.watchers
    }
}
