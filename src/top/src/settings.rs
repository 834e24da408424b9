//! The flags, and the settings that they give.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use http::{Uri, uri};

/// The gateway makes a document each second at most; a picture that is older than an hour is a typing error.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// Which resources are shown first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// Those with the most watches.
    #[default]
    Watches,
    /// Those with the most slow clients.
    Slow,
    /// Those that deliver the most events a second.
    Events,
    /// By name.
    Name,
}

/// Show the status of a running kube-fanout gateway in the terminal: resources, slow clients, rates (docs/STATUS.md).
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "kube-fanout-top", version, max_term_width = 110)]
pub struct TopSettings {
    /// The gateway's admin port, such as the local end of `kubectl port-forward`.
    #[arg(long, env = "KUBE_FANOUT_URL", default_value = "http://127.0.0.1:9090", value_parser = admin_url)]
    pub url: Uri,
    /// File with the bearer token of a user who may see the status; needed only if the admin port is not on loopback.
    #[arg(long, env = "KUBE_FANOUT_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Time from one picture to the next, at least a second.
    #[arg(long, env = "KUBE_FANOUT_INTERVAL", value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Print the status once, as text, and exit.
    #[arg(long, env = "KUBE_FANOUT_ONCE")]
    pub once: bool,
    /// Which resources are shown first.
    #[arg(long, env = "KUBE_FANOUT_SORT", value_enum, default_value_t = TopSort::Watches)]
    pub sort: TopSort,
    /// Whether colours may be used: `NO_COLOR` is not set.
    #[arg(skip)]
    pub color: bool,
}

fn admin_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text
        .parse()
        .map_err(|_| "not a URL: write http://127.0.0.1:9090")?;
    if url.scheme() != Some(&uri::Scheme::HTTP) {
        return Err("the admin port speaks plain HTTP: write http://127.0.0.1:9090");
    }
    if url.authority().is_some_and(|at| at.as_str().contains('@')) {
        return Err("users and passwords are not supported: use --token-file");
    }
    Ok(url)
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let interval =
        humantime::parse_duration(text).map_err(|_| "not a duration: write 2ms, 75s, 10m or 1h")?;
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Err("must be between 1s and 1h");
    }
    Ok(interval)
}
