//! Flags that several subcommands share. The others stand with their subcommands.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

/// The server under test and how to reach it.
#[derive(Debug, Clone, Args)]
pub struct ServerFlags {
    /// Server under test, such as http://127.0.0.1:8001.
    #[arg(long)]
    pub target: String,
    /// API server that the reference and the writer use directly; by default the target.
    #[arg(long)]
    pub reference: Option<String>,
    /// Bearer token, or @FILE.
    #[arg(long, env = "LOADTEST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// CA certificates for https, PEM.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// CA certificates of the reference, if they differ from --ca.
    #[arg(long)]
    pub reference_ca: Option<PathBuf>,
    /// Path of the collection.
    #[arg(long, default_value = "/api/v1/namespaces/default/configmaps")]
    pub path: String,
    /// Process of the server under test: its CPU and memory are reported.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Process of the API server behind it, for its CPU.
    #[arg(long)]
    pub upstream_pid: Option<u32>,
    /// Where a gateway under test has its metrics, such as http://127.0.0.1:9090: what reached the API server is read there.
    #[arg(long)]
    pub server_admin: Option<String>,
    /// Threads of the swarm.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// First local address; the next one is used for every 20,000 connections.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    pub source: Ipv4Addr,
}

/// Flags of scenarios with watchers.
#[derive(Debug, Clone, Args)]
pub struct WatchFlags {
    /// Number of watchers.
    #[arg(long, default_value_t = 5_000)]
    pub watchers: usize,
    /// Watch over HTTP/2.
    #[arg(long)]
    pub http2: bool,
    /// Streams on each HTTP/2 connection.
    #[arg(long, default_value_t = 100)]
    pub streams_per_connection: usize,
    /// Accept gzip.
    #[arg(long)]
    pub gzip: bool,
}

/// Flags of scenarios with churn.
#[derive(Debug, Clone, Args)]
pub struct ChurnFlags {
    /// Length of the measured window, such as 30s.
    #[arg(long, default_value = "30s", value_parser = seconds)]
    pub duration: Duration,
    /// Churn before the window, such as 2s.
    #[arg(long, default_value = "2s", value_parser = seconds)]
    pub warm_up: Duration,
    /// Writes a second; 0 if the server churns by itself.
    #[arg(long, default_value_t = 100.0)]
    pub write_rate: f64,
    /// Number of objects that are written.
    #[arg(long, default_value_t = 100)]
    pub objects: usize,
    /// Size of an object on the wire, bytes.
    #[arg(long, default_value_t = 1_024)]
    pub object_size: usize,
}

/// Flags of scenarios with watchers under churn.
#[derive(Debug, Clone, Args)]
pub struct WatchRunFlags {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    #[command(flatten)]
    pub churning: ChurnFlags,
}

/// The gateway's program.
#[derive(Debug, Clone, Args)]
pub struct GatewayFlags {
    /// The gateway's program; by default the one in the folder of this program.
    #[arg(long)]
    pub gateway: Option<PathBuf>,
}

impl GatewayFlags {
    /// The program that the flags name.
    pub fn program(&self) -> Result<PathBuf> {
        let program = match &self.gateway {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("kube-fanout"),
        };
        ensure!(
            program.is_file(),
            "{} is missing: cargo build --release --workspace, or --gateway FILE",
            program.display()
        );
        Ok(program)
    }
}

/// Reads `30s`, `2m` or a plain number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text}: not a number of seconds"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}
