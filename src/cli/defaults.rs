//! The defaults of all flags, with their reasons.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::choices::{AuthMode, LogFormat, LogLevel};
use super::words::{ByteLen, ObjectCount, Ratio, TimeSpan};

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
/// kube-apiserver's default for denials of such a webhook (`--authorization-webhook-cache-unauthorized-ttl`).
pub const AUTH_DENY_TTL: TimeSpan = TimeSpan(Duration::from_secs(30));
/// A revoked permission ends streams within about half a minute.
pub const REAUTHORIZE_INTERVAL: TimeSpan = TimeSpan(Duration::from_secs(30));
/// As long as the API server itself uses a cached decision of an authorization webhook that it cannot reach.
pub const REAUTHORIZE_GRACE: TimeSpan = TimeSpan(Duration::from_secs(300));
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
/// Resources that hold secrets or tokens in clear text must not be held in memory. Metrics are computed for each request and cannot
/// be watched.
pub const PASSTHROUGH_RESOURCES: &str = "secrets,*.oauth.openshift.io,tokens.management.cattle.io,\
    clusterregistrationtokens.management.cattle.io,tokens.ext.cattle.io,\
    *.metrics.k8s.io,*.custom.metrics.k8s.io,*.external.metrics.k8s.io";

/// The API server's own upper bound for the history of a watch cache (docs/PROTOCOL.md §10, "history window").
pub const RING_EVENTS_MAX: usize = 102_400;
/// Holds the API server's 75 s of history at about 1,000 events per second of 3 KiB each. A ring takes memory only as it fills.
pub const RING_BYTES_MAX: ByteLen = ByteLen(256 << 20);
/// As long as the API server keeps events itself, so that a client that can resume at the API server can also resume here.
pub const RING_AGE_MIN: TimeSpan = TimeSpan(Duration::from_secs(75));
/// As much as a large cluster's objects take twice: each cache's file has at most about twice the length of its objects.
pub const STATE_BYTES_MAX: ByteLen = ByteLen(8 << 30);
/// What a killed process loses is read again from upstream, which has a minute's history.
pub const STATE_INTERVAL: TimeSpan = TimeSpan(Duration::from_secs(1));
/// Half of what upstream keeps of its history at least, so that its watch continues where the handover ended.
pub const HANDOVER_TIMEOUT: TimeSpan = TimeSpan(Duration::from_secs(30));
/// As much as the largest resource of a large cluster takes, with its history.
pub const HANDOVER_BYTES_MAX: ByteLen = ByteLen(4 << 30);
/// Never: watches would end early where nothing is gained, as behind a load balancer that always chooses the same replica for a client.
pub const REBALANCE_INTERVAL: TimeSpan = TimeSpan(Duration::ZERO);
/// Ten times etcd's limit of 1.5 MiB for one object, because JSON can be longer than the stored form.
pub const FRAME_LEN_MAX: ByteLen = ByteLen(16 << 20);
/// A controller that restarts or is rolled out is back within minutes, and must not cause a list upstream.
pub const IDLE_RESOURCE_TIMEOUT: TimeSpan = TimeSpan(Duration::from_secs(600));
/// People do not notice 2 ms, and controllers do not react faster; under load many events then share one write.
pub const COALESCE_DELAY_MAX: TimeSpan = TimeSpan(Duration::from_millis(2));

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
/// A waiting list costs little more than its connection, so a thundering herd can wait in the queue instead of being refused and
/// coming back.
pub const LISTS_WAITING_MAX: usize = 16_384;
/// Half of the minute within which the API server answers a request.
pub const LIST_WAIT_MAX: TimeSpan = TimeSpan(Duration::from_secs(30));
/// With the frames in which lists are sent, a client that reads less than 32 KB/s. A busy but healthy client reads faster.
pub const LIST_STALL_MAX: TimeSpan = TimeSpan(Duration::from_secs(2));
/// The capacity of the connections to upstream: 64 HTTP/2 connections with 90 streams each.
pub const FORWARDED_REQUESTS_MAX: usize = 5_760;
/// The same capacity again: short requests and watches have connections of their own, so neither takes the other's.
pub const FORWARDED_WATCHES_MAX: usize = 5_760;
/// Each tunnel holds two connections and two buffers, so this is at most 320 MB and 8,192 open files.
pub const TUNNELS_MAX: usize = 4_096;
/// Never: a single replica has nobody to send clients to.
pub const REQUESTS_PER_GOAWAY: usize = 0;
/// No bound: how much memory the caches need is not known in advance, so the operator must choose it.
pub const MEMORY_MAX: ByteLen = ByteLen(0);

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
