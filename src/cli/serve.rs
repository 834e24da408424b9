//! Flags of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    ADMIN_LISTEN, AUDIT_LOG_MAXAGE, AUDIT_LOG_MAXBACKUP, AUDIT_LOG_MAXSIZE, AUTH, AUTH_ALLOW_TTL,
    AUTH_DENY_TTL, ByteLen, CACHE_RESOURCES, COALESCE_DELAY_MAX, CONNECTIONS_MAX, DurationWord,
    FORWARDED_REQUESTS_MAX, FORWARDED_WATCHES_MAX, FRAME_LEN_MAX, IDLE_RESOURCE_TIMEOUT,
    LIST_STALL_MAX, LIST_WAIT_MAX, LISTEN, LISTS_MAX, LISTS_WAITING_MAX, MEMORY_MAX,
    PASSTHROUGH_RESOURCES, REAUTHORIZE_GRACE, REAUTHORIZE_INTERVAL,
    REQUESTHEADER_EXTRA_HEADERS_PREFIX, REQUESTHEADER_GROUP_HEADERS, REQUESTHEADER_UID_HEADERS,
    REQUESTHEADER_USERNAME_HEADERS, RING_AGE_MIN, RING_BYTES_MAX, RING_EVENTS_MAX, TUNNELS_MAX,
    WATCHES_MAX,
};

/// How callers are told apart and what they may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthMode {
    /// TokenReview and SubjectAccessReview upstream, under the gateway's identity
    Review,
    /// SelfSubjectReview and SelfSubjectAccessReview upstream, with the caller's own credentials
    SelfCheck,
    /// TokenReview upstream; access is decided here, by the roles and bindings that upstream holds
    Rbac,
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
    /// Certificate and key for clients that ask for one of the names, or for those in the certificate; may be given several
    /// times, or joined by semicolons.
    #[arg(
        long,
        value_name = "CERT,KEY[:NAMES]",
        help_heading = "Downstream",
        value_delimiter = ';'
    )]
    pub tls_sni_cert_key: Vec<String>,
    /// Address and port for operators: as --listen, with connections, watches and lists of its own.
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream")]
    pub operator_listen: Option<SocketAddr>,
    /// Allow --plain-http and --auth none off loopback: whoever reaches the port then reads the cluster.
    #[arg(long, value_name = "BOOL", help_heading = "Downstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub i_know_this_is_insecure: bool,
    /// Address and port for metrics and health, plain HTTP.
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream", default_value_t = ADMIN_LISTEN)]
    pub admin_listen: SocketAddr,

    /// How callers are told apart and what they may see; none is refused off loopback.
    #[arg(long, value_name = "MODE", help_heading = "Authentication and authorization", value_enum, default_value_t = AUTH)]
    pub auth: AuthMode,
    /// Take requests without credentials as those of system:anonymous, instead of answering 401.
    #[arg(long, value_name = "BOOL", help_heading = "Authentication and authorization", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub anonymous: bool,
    /// Audiences that tokens must be meant for; without it, those of the API server.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Authentication and authorization",
        value_delimiter = ','
    )]
    pub token_audiences: Vec<String>,
    /// How long an allowed access is remembered; 0s asks each time.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = AUTH_ALLOW_TTL)]
    pub auth_allow_ttl: DurationWord,
    /// How long a denied access is remembered; 0s asks each time.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = AUTH_DENY_TTL)]
    pub auth_deny_ttl: DurationWord,
    /// How often it is asked again whether callers of open streams may still see what they see.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = REAUTHORIZE_INTERVAL)]
    pub reauthorize_interval: DurationWord,
    /// How long open streams live if that cannot be asked.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = REAUTHORIZE_GRACE)]
    pub reauthorize_grace: DurationWord,
    /// Authorities, PEM, whose client certificates are accepted: common name and organizations are user and groups.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Authentication and authorization"
    )]
    pub client_ca_file: Option<PathBuf>,
    /// Authorities, PEM, of front proxies, which name the caller in headers.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Authentication and authorization"
    )]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; without it, all that those authorities vouch for.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Authentication and authorization",
        value_delimiter = ','
    )]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name, the first that is there counts.
    #[arg(long, value_name = "LIST", help_heading = "Authentication and authorization", value_delimiter = ',',
        default_value = REQUESTHEADER_USERNAME_HEADERS)]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid.
    #[arg(long, value_name = "LIST", help_heading = "Authentication and authorization", value_delimiter = ',',
        default_value = REQUESTHEADER_UID_HEADERS)]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(long, value_name = "LIST", help_heading = "Authentication and authorization", value_delimiter = ',',
        default_value = REQUESTHEADER_GROUP_HEADERS)]
    pub requestheader_group_headers: Vec<String>,
    /// What the names of headers with more about the user begin with.
    #[arg(long, value_name = "LIST", help_heading = "Authentication and authorization", value_delimiter = ',',
        default_value = REQUESTHEADER_EXTRA_HEADERS_PREFIX)]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Policy that says which requests are audited: kind Policy of audit.k8s.io/v1. Needs --audit-log-path.
    #[arg(long, value_name = "FILE", help_heading = "Audit")]
    pub audit_policy_file: Option<PathBuf>,
    /// File for audit events, one JSON object a line; - for standard output.
    #[arg(long, value_name = "FILE", help_heading = "Audit")]
    pub audit_log_path: Option<PathBuf>,
    /// Length in megabytes at which the file is rotated.
    #[arg(long, value_name = "MB", help_heading = "Audit", default_value_t = AUDIT_LOG_MAXSIZE)]
    pub audit_log_maxsize: u64,
    /// Most rotated files that are kept; 0 keeps all.
    #[arg(long, value_name = "COUNT", help_heading = "Audit", default_value_t = AUDIT_LOG_MAXBACKUP)]
    pub audit_log_maxbackup: usize,
    /// Days after which rotated files are deleted; 0 for never.
    #[arg(long, value_name = "DAYS", help_heading = "Audit", default_value_t = AUDIT_LOG_MAXAGE)]
    pub audit_log_maxage: u64,

    /// Resources whose caches start at once and stay, as pods.v1,deployments.v1.apps.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Caches",
        value_delimiter = ','
    )]
    pub pin_resources: Vec<String>,
    /// Resources that may be cached, as pods,deployments.apps,*.v1.batch; * is all of them.
    #[arg(long, value_name = "LIST", help_heading = "Caches", value_delimiter = ',', default_value = CACHE_RESOURCES)]
    pub cache_resources: Vec<String>,
    /// Resources that are never cached but forwarded, also if the flag above names them.
    #[arg(long, value_name = "LIST", help_heading = "Caches", value_delimiter = ',', default_value = PASSTHROUGH_RESOURCES)]
    pub passthrough_resources: Vec<String>,
    /// How long a cache outlives its last client.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = IDLE_RESOURCE_TIMEOUT)]
    pub idle_resource_timeout: DurationWord,
    /// Most events kept in a resource's ring.
    #[arg(long, value_name = "COUNT", help_heading = "Caches", default_value_t = RING_EVENTS_MAX)]
    pub ring_events_max: usize,
    /// Most bytes kept in a resource's ring.
    #[arg(long, value_name = "BYTES", help_heading = "Caches", default_value_t = RING_BYTES_MAX)]
    pub ring_bytes_max: ByteLen,
    /// Events younger than this stay in the ring while the two bounds above allow.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = RING_AGE_MIN)]
    pub ring_age_min: DurationWord,
    /// Longest wait for more events before clients are woken, under load; an idle ring delivers at once.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = COALESCE_DELAY_MAX)]
    pub coalesce_delay_max: DurationWord,

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
    pub list_wait_max: DurationWord,
    /// A list whose client takes nothing for so long gives its place to one that waits, and goes on without.
    #[arg(long, value_name = "TIME", help_heading = "Admission", default_value_t = LIST_STALL_MAX)]
    pub list_stall_max: DurationWord,
    /// Most forwarded requests at once, watches and the like left out; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = FORWARDED_REQUESTS_MAX)]
    pub forwarded_requests_max: usize,
    /// Most forwarded watches, logs and other long requests at once; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = FORWARDED_WATCHES_MAX)]
    pub forwarded_watches_max: usize,
    /// Most upgraded connections at once: exec, attach, port-forward; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = TUNNELS_MAX)]
    pub tunnels_max: usize,
    /// Users whose requests are limited by the bounds above alone, not by shares.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Admission",
        value_delimiter = ','
    )]
    pub exempt_users: Vec<String>,
    /// Groups of such users.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Admission",
        value_delimiter = ','
    )]
    pub exempt_groups: Vec<String>,
    /// Resident memory above which new lists and watches get 429; 0 for no such bound.
    #[arg(long, value_name = "BYTES", help_heading = "Admission", default_value_t = MEMORY_MAX)]
    pub memory_max: ByteLen,
}
