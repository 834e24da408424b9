//! Flags of `inject`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::defaults::INJECT_NAMESPACE;

/// What `inject` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InjectAction {
    /// Say what is set up, whose pods are injected, and what is wrong
    Status,
    /// Inject this many of 100 new pods
    Percent,
    /// Lead all clients back to the API servers, within a minute
    Off,
    /// Lead the clients of injected pods to gateways again
    On,
    /// Run the publisher, which keeps the addresses of API servers and Service up to date
    Publish,
}

/// Flags of `inject`.
#[derive(Clone, Debug, Args)]
pub struct InjectFlags {
    /// What to do.
    #[arg(value_enum, value_name = "ACTION")]
    pub action: InjectAction,
    /// With `percent`: how many of 100 new pods are injected, from 0 to 100.
    #[arg(value_name = "PERCENT")]
    pub percent: Option<String>,
    /// Kubeconfig of a user with the rights for it. One of --kubeconfig, --in-cluster and --upstream is required.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use instead of its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Use the service account of this pod.
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "BOOL",
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub in_cluster: bool,
    /// Address of an API server that needs no credentials, such as `kubectl proxy`.
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Namespace of the gateways.
    #[arg(long, value_name = "NAME", default_value = INJECT_NAMESPACE)]
    pub namespace: String,
}
