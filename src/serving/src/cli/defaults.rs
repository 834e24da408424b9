//! The defaults of all flags, with their reasons.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::choices::{AuthMode, CompressWatches, LogFormat, LogLevel, UpstreamAuthorizers};
use super::words::{ByteLen, ObjectCount, Percentage, Ratio, ReviewBudget, TimeSpan};

/// The fewest with which one may be gone.
pub const ASSESS_GATEWAYS: u32 = 2;
/// JSON and protobuf: most clusters have clients of both.
pub const ASSESS_ENCODINGS: u32 = 2;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Loopback, because serving the cluster to a network must be an explicit decision. 8443 is the usual unprivileged port of an API
/// server.
pub const LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 8443);
/// Loopback: metrics show no objects, but resources and load, which are not published to a network by default.
pub const ADMIN_LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 9090);
/// The port of `kubectl proxy`, so that examples written for it work unchanged.
pub const APISERVER_LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 8001);
/// The embedded API server's own audience; kube-apiserver's default.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc";

/// The only mode that authenticates callers without special rights of the gateway.
pub const AUTH: AuthMode = AuthMode::SelfCheck;
/// kube-apiserver's default for decisions of an authorization webhook (`--authorization-webhook-cache-authorized-ttl`).
pub const AUTH_ALLOW_TTL: TimeSpan = TimeSpan(Duration::from_secs(300));
/// kube-apiserver itself never checks an open watch again; what events tell ends streams in seconds.
pub const REAUTHORIZE_INTERVAL: TimeSpan = TimeSpan(Duration::from_secs(600));
/// The gateway must always spare the API server more than it asks of it.
pub const REVIEW_BUDGET: ReviewBudget = ReviewBudget::Auto;
/// As long as the API server itself uses a cached decision of an authorization webhook that it cannot reach.
pub const REAUTHORIZE_GRACE: TimeSpan = TimeSpan(Duration::from_secs(300));
/// Asking costs one small review a minute.
pub const UPSTREAM_AUTHORIZERS: UpstreamAuthorizers = UpstreamAuthorizers::Auto;
/// The header that kube-apiserver's aggregation layer and common front proxies use.
pub const REQUESTHEADER_USERNAME_HEADERS: &str = "X-Remote-User";
/// None: only newer front proxies send the uid, and an older one might pass on the header that its client set.
pub const REQUESTHEADER_UID_HEADERS: &str = "";
/// The header that kube-apiserver's aggregation layer and common front proxies use.
pub const REQUESTHEADER_GROUP_HEADERS: &str = "X-Remote-Group";
/// The prefix that kube-apiserver's aggregation layer and common front proxies use.
pub const REQUESTHEADER_EXTRA_HEADERS_PREFIX: &str = "X-Remote-Extra-";

/// All resources that kube-apiserver stores itself, except `events` and those of [`PASSTHROUGH_RESOURCES`]: a wildcard names no group of
/// an aggregated API server.
pub const CACHE_RESOURCES: &str = "*";
/// The admin port of a gateway on this machine, or behind `kubectl port-forward`.
pub const SERVING_ADMIN: &str = "http://127.0.0.1:9090";
/// Without rules memory answers whatever it can.
pub const SERVING: &str = "rules";
/// Resources that hold secrets or tokens in clear text must not be held in memory. Metrics are computed for each request and cannot
/// be watched.
pub const PASSTHROUGH_RESOURCES: &str = "secrets,*.oauth.openshift.io,tokens.management.cattle.io,\
    clusterregistrationtokens.management.cattle.io,tokens.ext.cattle.io,\
    *.metrics.k8s.io,*.custom.metrics.k8s.io,*.external.metrics.k8s.io";

/// Holds the API server's 75 s of history at about 1,000 events per second of 3 KiB each. A ring takes memory only as it fills.
pub const RING_BYTES_MAX: ByteLen = ByteLen(256 << 20);
/// As long as the API server keeps events itself, so that a client that can resume at the API server can also resume here.
pub const RING_AGE_MIN: TimeSpan = TimeSpan(Duration::from_secs(75));
/// Never: watches would end early where nothing is gained, as behind a load balancer that always chooses the same replica for a client.
pub const REBALANCE_INTERVAL: TimeSpan = TimeSpan(Duration::ZERO);
/// A controller that restarts or is rolled out is back within minutes, and must not cause a list upstream.
pub const IDLE_RESOURCE_TIMEOUT: TimeSpan = TimeSpan(Duration::from_secs(600));

/// Bookmarks come each minute. A watch that has brought none for 64 to 68 s is compared with upstream, and that has to be done before.
pub const STALENESS_BOUND: TimeSpan = TimeSpan(Duration::from_secs(75));
/// 500 objects a minute compare 150,000 pods in five hours, and cost upstream less than a client that lists once.
pub const DRIFT_INTERVAL: TimeSpan = TimeSpan(Duration::from_secs(60));

/// As many as the limit of open files allows, minus the connections to upstream.
pub const CONNECTIONS_MAX: usize = 0;
/// An idle watch costs 2 to 24 KiB of memory, so this is a few gigabytes at most.
pub const WATCHES_MAX: usize = 250_000;
/// Enough to saturate any network even if some clients are slow. Each list holds about 300 KiB, mostly in the kernel.
pub const LISTS_MAX: usize = 256;
/// A fifth of the bytes for the CPU of one event in a hundred.
pub const COMPRESS_WATCHES: CompressWatches = CompressWatches::Auto;
/// Never: a single replica has nobody to send clients to.
pub const REQUESTS_PER_GOAWAY: usize = 0;
/// No bound: how much memory the caches need is not known in advance, so the operator must choose it.
pub const MEMORY_MAX: ByteLen = ByteLen(0);

/// Only nodes with a relay ask. Those who install relays before they want them used begin with 0.
pub const RELAY_PERCENT: Percentage = Percentage(1_000_000);

/// One in a hundred: at thousands of requests a second a collector still gets enough.
pub const OTLP_RATIO: Ratio = Ratio(10_000);

/// Kubernetes kills a pod 30 s after SIGTERM by default, which leaves 5 s for the rest of the shutdown.
pub const DRAIN_TIMEOUT: TimeSpan = TimeSpan(Duration::from_secs(25));
/// No delay: how long load balancers take to notice is known to the operator only. Deployments with a Service set some seconds.
pub const DRAIN_DELAY: TimeSpan = TimeSpan(Duration::ZERO);
/// For people who start the program by hand; deployments choose JSON.
pub const LOG_FORMAT: LogFormat = LogFormat::Text;
/// Logs changes of state, but never one line per event.
pub const LOG_LEVEL: LogLevel = LogLevel::Info;
/// One thread per CPU that the process may use; worker threads never block.
pub const WORKER_THREADS: usize = 0;

/// The size of a small Pod, 1.2 KB of JSON, with which other servers are measured, too.
pub const OBJECT_LEN: ByteLen = ByteLen(1_200);
/// Writes per second: visible on the screen, and negligible for the CPU.
pub const CHURN: u32 = 50;
/// As many as the node agents of a medium-sized cluster; a small machine can run them.
pub const WATCHERS: usize = 1_000;

/// A small cluster: 1,000 pods and 100 config maps.
#[must_use]
pub fn objects() -> Vec<ObjectCount> {
    vec![
        ObjectCount::new("pods", 1_000),
        ObjectCount::new("configmaps", 100),
    ]
}

/// Every cluster has namespaces, in every cluster they are few, and most gateways may read them.
pub const CHECK_COMPARE_RESOURCE: &str = "namespaces.v1";
/// No repetition: how long a rollout may take is for the user to say.
pub const CHECK_WAIT: TimeSpan = TimeSpan(Duration::ZERO);
/// As in the manifests.
pub const INJECT_NAMESPACE: &str = "kube-fanout";
