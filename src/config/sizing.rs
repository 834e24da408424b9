//! Validates the flags of `size`, and answers them.

use super::settings_error::{SettingsError, in_range};
use crate::cli::{self, OutputFormat, SizeFlags};
use crate::size::{self, ReplicaSpec, Workload};

#[cfg(test)]
mod tests;

/// More is a typing error.
const RATE_MAX: f64 = 1e9;

/// The answer of `size`.
///
/// # Errors
/// The first invalid flag, or that no number of replicas is enough.
pub(super) fn answer(flags: &SizeFlags) -> Result<String, SettingsError> {
    let rate = |flag, value| in_range(flag, value, 0.0, RATE_MAX);
    let watches = in_range("watches", flags.watches, 1, 100_000_000)?;
    let (events, own_events) = (
        rate("events", flags.events)?,
        rate("own-events", flags.own_events)?,
    );
    let workload = Workload {
        watches,
        events,
        own_events,
        event_bytes: bytes(flags.event_len),
        upstream_events: match flags.upstream_events {
            Some(given) => rate("upstream-events", given)?,
            None => events + own_events * f64::from(watches),
        },
        object_bytes: bytes(flags.objects_len),
        resources: in_range("resources", flags.resources, 1, 10_000)?,
        encodings: in_range("encodings", flags.encodings, 1, 3)?,
        listed_bytes: bytes(flags.listed_len),
        lists: flags.lists,
    };
    let replica = ReplicaSpec {
        cores: in_range("cores", flags.cores, 0.1, 1_024.0)?,
        network_bits: in_range("network", flags.network, 0.01, 10_000.0)? * 1e9,
        history_bytes_max: bytes(cli::RING_BYTES_MAX),
        history_events_max: cli::RING_EVENTS_MAX as f64,
        http2: flags.http2,
        tls: !flags.plain_http,
    };
    let plan = size::plan(&workload, replica)?;
    Ok(match flags.output {
        OutputFormat::Text => size::text(&plan, replica),
        OutputFormat::Json => size::json(&plan),
    })
}

fn bytes(len: cli::ByteLen) -> f64 {
    len.0 as f64
}
