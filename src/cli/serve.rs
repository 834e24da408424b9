//! Flags of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    ADMIN_LISTEN, AUTH, ByteLen, COALESCE_DELAY_MAX, CONNECTIONS_MAX, FORWARDED_REQUESTS_MAX,
    FORWARDED_WATCHES_MAX, FRAME_LEN_MAX, IDLE_RESOURCE_TIMEOUT, LIST_STALL_MAX, LIST_WAIT_MAX,
    LISTEN, LISTS_MAX, LISTS_WAITING_MAX, MEMORY_MAX, PASSTHROUGH_RESOURCES, RING_AGE_MIN,
    RING_BYTES_MAX, RING_EVENTS_MAX, Span, TUNNELS_MAX, WATCHES_MAX,
};

/// How callers are told apart and what they may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthMode {
    /// TokenReview and SubjectAccessReview upstream, under the gateway's identity (not built yet)
    Review,
    /// SelfSubjectAccessReview upstream, with the caller's own credentials (not built yet)
    SelfCheck,
    /// None: everybody who can connect sees what the gateway sees
    None,
}

/// Flags of `serve`, and of `config check` and `config print`.
#[derive(Clone, Debug, Args)]
pub struct ServeFlags {
    /// YAML file with the same settings: apiVersion kube-fanout.dev/v1alpha1, kind GatewayConfiguration, and the flags'
    /// names as keys in camelCase.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Upstream by kubeconfig.
    #[arg(long, value_name = "FILE", help_heading = "Upstream")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one.
    #[arg(long, value_name = "NAME", help_heading = "Upstream")]
    pub context: Option<String>,
    /// Upstream is the cluster of the pod that this runs in, by its service account.
    #[arg(long, value_name = "BOOL", help_heading = "Upstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub in_cluster: bool,
    /// Upstream by address, without credentials: `kubectl proxy`, or `kube-fanout apiserver`.
    #[arg(long, value_name = "URL", help_heading = "Upstream")]
    pub upstream: Option<String>,
    /// Longest frame accepted from upstream: one watch event or one list item.
    #[arg(long, value_name = "BYTES", help_heading = "Upstream", default_value_t = FRAME_LEN_MAX)]
    pub frame_len_max: ByteLen,

    /// Address and port for clients.
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream", default_value_t = LISTEN)]
    pub listen: SocketAddr,
    /// Certificate chain shown to clients, PEM.
    #[arg(long, value_name = "FILE", help_heading = "Downstream")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, value_name = "FILE", help_heading = "Downstream")]
    pub tls_key: Option<PathBuf>,
    /// Serve plain HTTP; refused off loopback.
    #[arg(long, value_name = "BOOL", help_heading = "Downstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub plain_http: bool,
    /// How callers are told apart and what they may see; none is refused off loopback.
    #[arg(long, value_name = "MODE", help_heading = "Downstream", value_enum, default_value_t = AUTH)]
    pub auth: AuthMode,
    /// Allow --plain-http and --auth none off loopback: whoever reaches the port then reads the cluster.
    #[arg(long, value_name = "BOOL", help_heading = "Downstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub i_know_this_is_insecure: bool,
    /// Address and port for metrics and health, plain HTTP.
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream", default_value_t = ADMIN_LISTEN)]
    pub admin_listen: SocketAddr,

    /// Resources whose caches start at once and stay, as pods.v1,deployments.v1.apps.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Caches",
        value_delimiter = ','
    )]
    pub pin_resources: Vec<String>,
    /// Resources that are never cached but forwarded, as secrets,leases.coordination.k8s.io.
    #[arg(long, value_name = "LIST", help_heading = "Caches", value_delimiter = ',', default_value = PASSTHROUGH_RESOURCES)]
    pub passthrough_resources: Vec<String>,
    /// How long a cache outlives its last client.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = IDLE_RESOURCE_TIMEOUT)]
    pub idle_resource_timeout: Span,
    /// Most events kept in a resource's ring.
    #[arg(long, value_name = "COUNT", help_heading = "Caches", default_value_t = RING_EVENTS_MAX)]
    pub ring_events_max: usize,
    /// Most bytes kept in a resource's ring.
    #[arg(long, value_name = "BYTES", help_heading = "Caches", default_value_t = RING_BYTES_MAX)]
    pub ring_bytes_max: ByteLen,
    /// Events younger than this stay in the ring while the two bounds above allow.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = RING_AGE_MIN)]
    pub ring_age_min: Span,
    /// Longest wait for more events before clients are woken, under load; an idle ring delivers at once.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = COALESCE_DELAY_MAX)]
    pub coalesce_delay_max: Span,

    /// Most connections at once; 0 means what the limit of open files leaves beside connections to upstream. Who comes
    /// beyond is answered 429 and closed.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = CONNECTIONS_MAX)]
    pub connections_max: usize,
    /// Most watches at once; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = WATCHES_MAX)]
    pub watches_max: usize,
    /// Most lists sent from memory at once, initial events of watches among them; more wait. Short ones are not counted.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = LISTS_MAX)]
    pub lists_max: usize,
    /// Most lists that wait for their turn; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = LISTS_WAITING_MAX)]
    pub lists_waiting_max: usize,
    /// Longest wait of a list for its turn; 429 after it.
    #[arg(long, value_name = "TIME", help_heading = "Admission", default_value_t = LIST_WAIT_MAX)]
    pub list_wait_max: Span,
    /// A list whose client takes nothing for so long gives its place to one that waits, and goes on without.
    #[arg(long, value_name = "TIME", help_heading = "Admission", default_value_t = LIST_STALL_MAX)]
    pub list_stall_max: Span,
    /// Most forwarded requests at once, watches and the like left out; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = FORWARDED_REQUESTS_MAX)]
    pub forwarded_requests_max: usize,
    /// Most forwarded watches, logs and other long requests at once; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = FORWARDED_WATCHES_MAX)]
    pub forwarded_watches_max: usize,
    /// Most upgraded connections at once: exec, attach, port-forward; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = TUNNELS_MAX)]
    pub tunnels_max: usize,
    /// Resident memory above which new lists and watches get 429; 0 for no such bound.
    #[arg(long, value_name = "BYTES", help_heading = "Admission", default_value_t = MEMORY_MAX)]
    pub memory_max: ByteLen,
}
