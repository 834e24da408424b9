//! Flags of `top`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::defaults::{TOP_INTERVAL, TOP_URL};
use super::words::TimeSpan;

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

/// Flags of `top`.
#[derive(Clone, Debug, Args)]
pub struct TopFlags {
    /// The gateway's admin port, such as the local end of `kubectl port-forward`.
    #[arg(long, value_name = "URL", default_value = TOP_URL)]
    pub url: String,
    /// File with the bearer token of a user who may see the status; needed only if the admin port is not on loopback.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Time from one picture to the next, at least a second.
    #[arg(long, value_name = "TIME", default_value_t = TOP_INTERVAL)]
    pub interval: TimeSpan,
    /// Print the status once, as text, and exit.
    #[arg(long)]
    pub once: bool,
    /// Which resources are shown first.
    #[arg(long, value_enum, default_value_t = TopSort::Watches)]
    pub sort: TopSort,
}
