//! Flags of `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::choices::OutputFormat;
use super::defaults::{CHECK_COMPARE_RESOURCE, CHECK_WAIT};
use super::serve::ServeFlags;
use super::words::TimeSpan;

/// A group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum CheckCategory {
    /// The API servers: addresses, TLS, credentials
    Upstream,
    /// Files of certificates: keys, names, expiry
    Certificates,
    /// What the gateway's own identity may do
    Rights,
    /// What the API server offers: version, streamed lists, consistent reads
    Features,
    /// Open files, memory, the state directory, ports
    Limits,
    /// The clock, compared with the API server's
    Clock,
    /// Other gateways, from which caches are taken over
    Handover,
    /// The gateway as its clients see it; needs --gateway
    Gateway,
    /// A list and a watch, compared between API server and gateway; needs --gateway
    Live,
    /// The gateway's admin port; needs --gateway-admin
    Admin,
}

/// Flags of `check`: those of `serve`, and its own.
#[derive(Clone, Debug, Args)]
pub struct CheckFlags {
    /// Categories of checks to make; without it, all.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Check",
        value_enum,
        value_delimiter = ','
    )]
    pub category: Vec<CheckCategory>,
    /// Print the names of all checks and exit.
    #[arg(long, help_heading = "Check", num_args = 0..=1, require_equals = true, value_name = "BOOL",
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub list: bool,
    /// Check a machine or pod in which the gateway does not run yet: its ports and its state directory must be free.
    #[arg(long, help_heading = "Check", num_args = 0..=1, require_equals = true, value_name = "BOOL",
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub pre: bool,
    /// A running gateway, as its clients reach it.
    #[arg(long, value_name = "URL", help_heading = "Check")]
    pub gateway: Option<String>,
    /// PEM bundle of the certificate authorities of the gateway's certificate, instead of the system's.
    #[arg(long, value_name = "FILE", help_heading = "Check")]
    pub gateway_ca_file: Option<PathBuf>,
    /// Name in the gateway's certificate, if it is not the host of --gateway.
    #[arg(long, value_name = "NAME", help_heading = "Check")]
    pub gateway_server_name: Option<String>,
    /// File with the bearer token of a client, which is sent to the gateway; without it, requests carry no credentials.
    #[arg(long, value_name = "FILE", help_heading = "Check")]
    pub gateway_token_file: Option<PathBuf>,
    /// The running gateway's admin port, such as the local end of `kubectl port-forward`.
    #[arg(long, value_name = "URL", help_heading = "Check")]
    pub gateway_admin: Option<String>,
    /// Names and addresses under which clients reach the gateway. The serving certificate must cover them, and the host of --gateway.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Check",
        value_delimiter = ','
    )]
    pub client_names: Vec<String>,
    /// Resource that is compared between API server and gateway, in all namespaces.
    #[arg(long, value_name = "RESOURCE", help_heading = "Check", default_value = CHECK_COMPARE_RESOURCE)]
    pub compare_resource: String,
    /// Repeat the checks until none fails, for at most this long.
    #[arg(long, value_name = "TIME", help_heading = "Check", default_value_t = CHECK_WAIT)]
    pub wait: TimeSpan,
    /// Form of the report.
    #[arg(long, short, value_enum, help_heading = "Check", default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
    /// The settings that `serve` would use.
    #[command(flatten)]
    pub serve: ServeFlags,
}
