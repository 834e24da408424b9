//! Flags of `assess`.

use std::path::PathBuf;

use clap::Args;

use super::defaults::{ASSESS_ENCODINGS, ASSESS_GATEWAYS, PASSTHROUGH_RESOURCES};
use super::words::TimeSpan;

/// Flags of `assess`.
#[derive(Clone, Debug, Args)]
pub struct AssessFlags {
    /// Scrapes of `/metrics`, one for each kube-apiserver.
    #[arg(long, value_name = "FILES", value_delimiter = ',', required = true)]
    pub before: Vec<PathBuf>,
    /// The same of the same servers, at least ten minutes later. The start times in them say which belong together.
    #[arg(long, value_name = "FILES", value_delimiter = ',', required = true)]
    pub after: Vec<PathBuf>,
    /// Time between the scrapes; without it, the files' times or the times of the servers' last garbage collections say it.
    #[arg(long, value_name = "TIME")]
    pub window: Option<TimeSpan>,
    /// Audit logs of the API servers, as JSON lines, plain or compressed by gzip. The level `Metadata` suffices.
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub audit: Vec<PathBuf>,
    /// Number of gateways.
    #[arg(long, value_name = "N", default_value_t = ASSESS_GATEWAYS)]
    pub gateways: u32,
    /// Encodings, JSON and protobuf, in which clients read resources of Kubernetes itself. Custom resources have JSON only.
    #[arg(long, value_name = "N", default_value_t = ASSESS_ENCODINGS)]
    pub encodings: u32,
    /// Resources that the gateway forwards, as the flag of `serve`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = PASSTHROUGH_RESOURCES)]
    pub passthrough_resources: Vec<String>,
    /// Also write the assessment as JSON to this file; `-` is standard output, in place of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write it as an HTML page that explains itself; `-` is standard output, in place of the table.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
