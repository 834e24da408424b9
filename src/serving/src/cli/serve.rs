//! Flags of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::choices::{AuthMode, CompressWatches, UpstreamAuthorizers};
use super::defaults::{
    ADMIN_LISTEN, AUTH, AUTH_ALLOW_TTL, CACHE_RESOURCES, COMPRESS_WATCHES, CONNECTIONS_MAX,
    DRIFT_INTERVAL, IDLE_RESOURCE_TIMEOUT, LISTEN, LISTS_MAX, MEMORY_MAX, OTLP_RATIO,
    PASSTHROUGH_RESOURCES, REAUTHORIZE_GRACE, REAUTHORIZE_INTERVAL, REBALANCE_INTERVAL,
    RELAY_PERCENT, REQUESTHEADER_EXTRA_HEADERS_PREFIX, REQUESTHEADER_GROUP_HEADERS,
    REQUESTHEADER_UID_HEADERS, REQUESTHEADER_USERNAME_HEADERS, REQUESTS_PER_GOAWAY, REVIEW_BUDGET,
    RING_AGE_MIN, RING_BYTES_MAX, SERVING, STALENESS_BOUND, UPSTREAM_AUTHORIZERS, WATCHES_MAX,
};
use super::words::{ByteLen, Percentage, Ratio, ReviewBudget, TimeSpan};

/// Flags of `serve`, and of `config check` and `config print`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct ServeFlags {
    /// YAML file with these settings.
    ///
    /// It has apiVersion kube-fanout.dev/v1alpha1, kind GatewayConfiguration, and the names of flags in camelCase as keys.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// The API server that this kubeconfig names is upstream. One of --kubeconfig, --in-cluster and --upstream is required.
    #[arg(long, value_name = "FILE", help_heading = "Upstream")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use instead of its current one.
    #[arg(long, value_name = "NAME", help_heading = "Upstream")]
    pub context: Option<String>,
    /// The API server of the cluster that this pod runs in is upstream, with the pod's service account.
    #[arg(long, value_name = "BOOL", help_heading = "Upstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub in_cluster: bool,
    /// The API server at this address is upstream, without credentials: `kubectl proxy`, or `kube-fanout apiserver`.
    ///
    /// The address is `http://` or `https://` and a host. Several API servers of one cluster are separated by commas, or the flag
    /// is repeated.
    #[arg(
        long,
        value_name = "URLS",
        help_heading = "Upstream",
        value_delimiter = ','
    )]
    pub upstream: Vec<String>,
    /// Several API servers of one cluster, instead of the address that --kubeconfig or --in-cluster names, with its credentials
    /// and authorities.
    ///
    /// At most 16: docs/CONFIGURATION.md#several-api-servers.
    #[arg(
        long,
        value_name = "URLS",
        help_heading = "Upstream",
        value_delimiter = ','
    )]
    pub api_servers: Vec<String>,

    /// Address and port for clients.
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream", default_value_t = LISTEN)]
    pub listen: SocketAddr,
    /// Serving certificate chain, PEM. Needs --tls-key.
    #[arg(long, value_name = "FILE", help_heading = "Downstream")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the serving certificate, PEM.
    #[arg(long, value_name = "FILE", help_heading = "Downstream")]
    pub tls_key: Option<PathBuf>,
    /// Serve plain HTTP instead of HTTPS. Refused on addresses other than loopback.
    #[arg(long, value_name = "BOOL", help_heading = "Downstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub plain_http: bool,
    /// Certificate and key, PEM, for clients that ask for one of these names (SNI); without names, for the names in the
    /// certificate.
    ///
    /// Written `certificate,key` or `certificate,key:name,name`; the first label of a name may be `*`. Can be given several
    /// times, or separated by semicolons.
    #[arg(
        long,
        value_name = "CERT,KEY[:NAMES]",
        help_heading = "Downstream",
        value_delimiter = ';'
    )]
    pub tls_sni_cert_key: Vec<String>,
    /// Second address and port, for operators.
    ///
    /// It works like --listen, with the same certificates and the same checks of callers, but has connections, watches and lists
    /// of its own, which the clients of --listen cannot use up.
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream")]
    pub operator_listen: Option<SocketAddr>,
    /// Allow --plain-http and --auth none on addresses other than loopback.
    ///
    /// Every client that reaches --listen or --operator-listen may then be able to read the cluster.
    #[arg(long, value_name = "BOOL", help_heading = "Downstream", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub i_know_this_is_insecure: bool,
    /// Address and port for metrics, health checks and the status page, plain HTTP (docs/CONFIGURATION.md#endpoints).
    #[arg(long, value_name = "ADDRESS", help_heading = "Downstream", default_value_t = ADMIN_LISTEN)]
    pub admin_listen: SocketAddr,

    /// How callers are authenticated and authorized.
    ///
    /// `self-check`: by upstream, with the caller's own credentials (SelfSubjectReview, SelfSubjectAccessReview). `review`: by
    /// upstream, under the gateway's identity (TokenReview, SubjectAccessReview). `rbac`: by TokenReview, and by the roles and
    /// bindings that the gateway lists and watches. `none`: every client that can connect sees what the gateway sees; refused on
    /// addresses other than loopback.
    #[arg(long, value_name = "MODE", help_heading = "Authentication and authorization", value_enum, default_value_t = AUTH)]
    pub auth: AuthMode,
    /// Treat requests without credentials as those of system:anonymous, and authorize them as that user, instead of answering
    /// 401.
    #[arg(long, value_name = "BOOL", help_heading = "Authentication and authorization", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub anonymous: bool,
    /// Audiences, one of which a token must be valid for; without it, the API server's own.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Authentication and authorization",
        value_delimiter = ','
    )]
    pub token_audiences: Vec<String>,
    /// How long an allowed access is remembered; with 0s it is checked for each request. A denied one is remembered for at most 30s.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = AUTH_ALLOW_TTL)]
    pub auth_allow_ttl: TimeSpan,
    /// How often the permissions of open streams are checked again, at most, if nothing tells the gateway of their end; all of them are checked
    /// within an hour.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = REAUTHORIZE_INTERVAL)]
    pub reauthorize_interval: TimeSpan,
    /// Reviews a second that these checks may send: auto, or a number, 0 for no limit.
    ///
    /// auto is a twentieth of the reads that memory answers, between 1 and 50.
    #[arg(long, value_name = "auto|NUMBER", help_heading = "Authentication and authorization", default_value_t = REVIEW_BUDGET)]
    pub review_budget: ReviewBudget,
    /// How long open streams live while checks of their permission fail.
    #[arg(long, value_name = "TIME", help_heading = "Authentication and authorization", default_value_t = REAUTHORIZE_GRACE)]
    pub reauthorize_grace: TimeSpan,
    /// What else than RBAC and the node authorizer decides upstream.
    ///
    /// `auto`: the gateway asks the API server each minute. `opaque`: something that the API server's reviews of rules do not show, such as
    /// a fork's own authorizer, or API servers behind one address that are configured differently. Then no decision is shared by several
    /// tokens of one account, and all of them are checked at the interval.
    #[arg(long, value_name = "MODE", help_heading = "Authentication and authorization", value_enum, default_value_t = UPSTREAM_AUTHORIZERS)]
    pub upstream_authorizers: UpstreamAuthorizers,
    /// Authorities of client certificates, PEM.
    ///
    /// Common name, organizations and the uid extension of a certificate are user, groups and uid.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Authentication and authorization"
    )]
    pub client_ca_file: Option<PathBuf>,
    /// Authorities of front proxies, PEM, which name the caller in headers.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Authentication and authorization"
    )]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; without it, every certificate of those authorities is a front proxy's.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Authentication and authorization",
        value_delimiter = ','
    )]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name; the first one that a request has is used.
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
    /// Prefixes of the headers with extra attributes of the user.
    #[arg(long, value_name = "LIST", help_heading = "Authentication and authorization", value_delimiter = ',',
        default_value = REQUESTHEADER_EXTRA_HEADERS_PREFIX)]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Policy of audit.k8s.io/v1 that decides which requests are audited. Needs --audit-log-path.
    #[arg(long, value_name = "FILE", help_heading = "Audit")]
    pub audit_policy_file: Option<PathBuf>,
    /// File for audit events, one JSON object per line; - for standard output. A file that logrotate moves away is followed by a new one
    /// within a second. Needs --audit-policy-file.
    #[arg(long, value_name = "FILE", help_heading = "Audit")]
    pub audit_log_path: Option<PathBuf>,

    /// Resources whose caches start at once and stay, such as `pods,deployments.apps,widgets.v1.example.com`.
    ///
    /// Readiness waits until each was filled once, but not for one that is forwarded because its objects cannot be cached or
    /// resources are short.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Caches",
        value_delimiter = ','
    )]
    pub pin_resources: Vec<String>,
    /// Resources that may be cached, such as `pods,deployments.apps,*.v1.batch`; `*` means all that kube-apiserver stores itself. What a
    /// service behind an APIService serves is cached only if its group is named, which asserts that it shows every caller the same.
    #[arg(long, value_name = "LIST", help_heading = "Caches", value_delimiter = ',', default_value = CACHE_RESOURCES)]
    pub cache_resources: Vec<String>,
    /// Resources that are never cached but forwarded, even if --cache-resources names them.
    #[arg(long, value_name = "LIST", help_heading = "Caches", value_delimiter = ',', default_value = PASSTHROUGH_RESOURCES)]
    pub passthrough_resources: Vec<String>,
    /// Whose lists and watches are answered from memory: `rules`, `passthrough` to forward everything, `shadow` to compare it, too, or
    /// rules as YAML or JSON (docs/CONFIGURATION.md#serving-rules). A request that no rule matches is answered from memory.
    #[arg(long, value_name = "RULES", help_heading = "Caches", default_value = SERVING)]
    pub serving: String,
    /// How long a cache is kept after its last client has left.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = IDLE_RESOURCE_TIMEOUT)]
    pub idle_resource_timeout: TimeSpan,
    /// How long upstream may be gone or silent before answers from a cache carry a `Warning` header.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = STALENESS_BOUND)]
    pub staleness_bound: TimeSpan,
    /// How often the next 500 objects of each cache are compared with upstream; 0s turns this off.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = DRIFT_INTERVAL)]
    pub drift_interval: TimeSpan,
    /// Most bytes kept in the history of a resource, its ring. A longer object is not cached, and none above 16Mi.
    #[arg(long, value_name = "BYTES", help_heading = "Caches", default_value_t = RING_BYTES_MAX)]
    pub ring_bytes_max: ByteLen,
    /// Events younger than this stay in the history unless memory is short, as far as --ring-bytes-max allows. Older
    /// ones stay while less than 70 % of --memory-max is in use.
    #[arg(long, value_name = "TIME", help_heading = "Caches", default_value_t = RING_AGE_MIN)]
    pub ring_age_min: TimeSpan,
    /// Resources whose clients can catch up, such as `pods,*.apps`; `*` means all.
    ///
    /// A watch from before the history then gets the latest state of what changed since, instead of 410:
    /// docs/RELIABILITY.md#catch-up-by-latest-state. Deletions take at most a quarter of --ring-bytes-max more.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Caches",
        value_delimiter = ','
    )]
    pub catch_up_resources: Vec<String>,

    /// Directory for checkpoints of the caches, from which a gateway that starts again continues (docs/RELIABILITY.md).
    ///
    /// Created if it is missing; refused if it is open to other users, or in use by another gateway.
    #[arg(long, value_name = "DIRECTORY", help_heading = "State")]
    pub state_dir: Option<PathBuf>,
    /// File with 32 bytes in base64, with which checkpoints are encrypted (AES-256-GCM). Needs --state-dir.
    #[arg(long, value_name = "FILE", help_heading = "State")]
    pub state_key_file: Option<PathBuf>,
    /// Resources without a checkpoint, such as `configmaps,*.v1.example.com`. Without --state-key-file secrets have none either.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "State",
        value_delimiter = ','
    )]
    pub state_exclude: Vec<String>,

    /// Another gateway of the same cluster, or a name of several, from which caches are taken over instead of being listed
    /// upstream.
    ///
    /// An address with `https`, or with `http` for loopback; often that of a headless Service: docs/RELIABILITY.md#handover.
    #[arg(long, value_name = "URL", help_heading = "Handover")]
    pub handover_from: Option<String>,
    /// PEM bundle of the authorities that issue the other gateways' certificates; without it those of the system. Needs
    /// --handover-from.
    #[arg(long, value_name = "FILE", help_heading = "Handover")]
    pub handover_ca_file: Option<PathBuf>,
    /// Name in the other gateways' certificates, if it is not the host of --handover-from.
    #[arg(long, value_name = "NAME", help_heading = "Handover")]
    pub handover_server_name: Option<String>,
    /// File with the bearer token for the other gateways, read for each handover.
    #[arg(long, value_name = "FILE", help_heading = "Handover")]
    pub handover_token_file: Option<PathBuf>,
    /// How often the number of watches is compared with the other gateways'; 0s turns this off. Needs --handover-from.
    ///
    /// The gateways that --handover-from names must be replicas of this one, one address each, and have the same setting:
    /// docs/RELIABILITY.md#clients-among-replicas. `30s` suits most.
    #[arg(long, value_name = "TIME", help_heading = "Handover", default_value_t = REBALANCE_INTERVAL)]
    pub rebalance_interval: TimeSpan,

    /// Most client connections at once; 0 means what the limit of open files leaves. A connection beyond is answered 429 and
    /// closed.
    ///
    /// Open files: docs/CONFIGURATION.md#open-files.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = CONNECTIONS_MAX)]
    pub connections_max: usize,
    /// Most watches at once, from memory and of Tables that share one upstream watch; 429 beyond.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = WATCHES_MAX)]
    pub watches_max: usize,
    /// Most lists sent from memory at once, initial events of watches included; up to 64 times as many wait in a queue, for
    /// 30s; 429 beyond.
    ///
    /// Lists of one object, and pages of up to 100 items without a search, are not counted.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = LISTS_MAX)]
    pub lists_max: usize,
    /// One in this many requests over HTTP/2, at random, ends its connection with GOAWAY, so that clients do not stay with one
    /// replica; 0 for none.
    ///
    /// Open streams continue. kube-apiserver's `--goaway-chance` is 1 divided by this.
    #[arg(long, value_name = "COUNT", help_heading = "Admission", default_value_t = REQUESTS_PER_GOAWAY)]
    pub requests_per_goaway: usize,
    /// Which watches are compressed with gzip, of those whose clients accept it.
    ///
    /// docs/PROTOCOL.md#57-gzip says what `auto` leaves out.
    #[arg(long, value_name = "WHICH", help_heading = "Admission", value_enum, default_value_t = COMPRESS_WATCHES)]
    pub compress_watches: CompressWatches,
    /// The percentage of nodes whose relay sends the node's clients here; the others go to the API servers.
    ///
    /// Which nodes these are depends on their names only: docs/HOWTO.md#relays-on-nodes. The same for all gateways that a relay knows.
    #[arg(long, value_name = "PERCENT", help_heading = "Admission", default_value_t = RELAY_PERCENT)]
    pub relay_percent: Percentage,
    /// Users that are not limited by shares. The bounds for all clients together apply to them, too.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Admission",
        value_delimiter = ','
    )]
    pub exempt_users: Vec<String>,
    /// Groups whose members are not limited by shares, like --exempt-users.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Admission",
        value_delimiter = ','
    )]
    pub exempt_groups: Vec<String>,
    /// Bound of the process's resident memory, above which new watches get 429 and caches are given up; 0 for no bound.
    ///
    /// As it is approached, memory is given back in steps: docs/RELIABILITY.md#memory. Pinned resources stay once they are filled.
    #[arg(long, value_name = "BYTES", help_heading = "Admission", default_value_t = MEMORY_MAX)]
    pub memory_max: ByteLen,

    /// Address of an OpenTelemetry collector for spans of requests, by OTLP over HTTP.
    ///
    /// `http://` only. Needs a build with the cargo feature `otlp`, which also reads OTEL_EXPORTER_OTLP_ENDPOINT:
    /// docs/CONFIGURATION.md#traces.
    #[arg(long, value_name = "URL", help_heading = "Traces")]
    pub otlp_endpoint: Option<String>,
    /// The part of all traces that is sent. Requests that belong to a client's trace follow the client's decision.
    #[arg(long, value_name = "RATIO", help_heading = "Traces", default_value_t = OTLP_RATIO)]
    pub otlp_ratio: Ratio,
}
