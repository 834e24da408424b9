//! Flags of the scenario with informers, and of its parts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::seconds;
use crate::pods::Fleet;

/// Where pods are written, and as whom.
#[derive(Debug, Clone, Args)]
pub struct PodFlags {
    /// API server, such as https://127.0.0.1:6443; HTTP/2.
    #[arg(long)]
    pub target: String,
    /// Bearer token, or @FILE.
    #[arg(long, env = "LOADTEST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// CA certificates for https, PEM.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// Number of pods.
    #[arg(long, default_value_t = 100_000)]
    pub pods: usize,
    /// Namespaces that they are spread over.
    #[arg(long, default_value_t = 50)]
    pub namespaces: usize,
    /// Nodes that they are spread over.
    #[arg(long, default_value_t = 200)]
    pub nodes: usize,
}

impl PodFlags {
    /// The pods there shall be.
    pub const fn fleet(&self) -> Fleet {
        Fleet {
            pods: self.pods,
            namespaces: self.namespaces,
            nodes: self.nodes,
        }
    }
}

/// Flags of `seed-pods`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "a group of flags, documented above")]
pub struct SeedPods {
    #[command(flatten)]
    pub written: PodFlags,
    /// Requests under way at a time.
    #[arg(long, default_value_t = 64)]
    pub in_flight: usize,
}

/// Flags of `follow`.
#[derive(Debug, Clone, Args)]
pub struct Follow {
    /// Credentials and address.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Which informer.
    #[arg(long, value_enum)]
    pub reader: InformerKind,
}

/// The informers that are part of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InformerKind {
    /// Ours, with k8s-openapi's pods.
    Typed,
    /// The same, without managed fields.
    TypedBare,
    /// Ours, with pods kept as bytes and decoded where somebody looks.
    Packed,
    /// The same, without managed fields.
    PackedBare,
    /// Ours, with objects of any kind kept as bytes.
    Raw,
    /// Ours, metadata only.
    Metadata,
    /// kube-rs's reflector, with k8s-openapi's pods.
    KubeRs,
    /// The same, without managed fields.
    KubeRsBare,
    /// kube-rs's reflector, with dynamic objects.
    KubeRsDynamic,
    /// kube-rs's reflector, metadata only.
    KubeRsMetadata,
}

/// Flags of `informers`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "a group of flags, documented above")]
pub struct Informers {
    #[command(flatten)]
    pub written: PodFlags,
    /// Credentials and address for the informers.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The client-go program (tests/real/apiserver/informer).
    #[arg(long)]
    pub client_go: PathBuf,
    /// Only rows whose form and name contain one of these, such as typed/,metadata/ours.
    #[arg(long, value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Changes of pods a second.
    #[arg(long, default_value_t = 200.0)]
    pub rate: f64,
    /// For how long pods are changed, such as 20s.
    #[arg(long, default_value = "20s", value_parser = seconds)]
    pub churn: Duration,
    /// How long an informer rests before its memory is read, such as 5s.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub settle: Duration,
    /// Leave out the turns in which informers of one form run at once.
    #[arg(long)]
    pub apart_only: bool,
    /// Write the figures to this file too.
    #[arg(long)]
    pub json: Option<PathBuf>,
}
