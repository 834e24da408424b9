//! Every default of a flag, with its reason.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::{AuthMode, ByteLen, DurationWord, LogFormat, LogLevel, ObjectCount};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Serving the cluster to a network is a decision, so nothing but loopback is served unless asked. 8443 is the usual
/// unprivileged port of an API server.
pub const LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 8443);
/// Metrics name resources and load, not objects; still nobody's business off this machine unless asked.
pub const ADMIN_LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 9090);
/// `kubectl proxy` uses 8001 too: clients' examples work unchanged.
pub const APISERVER_LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 8001);
/// The embedded API server's own audience, as kube-apiserver's by default.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc";

/// The safest mode that needs no rights beyond the caller's own.
pub const AUTH: AuthMode = AuthMode::SelfCheck;
/// As kube-apiserver remembers answers of an authorization webhook (`--authorization-webhook-cache-authorized-ttl`).
pub const AUTH_ALLOW_TTL: DurationWord = DurationWord(Duration::from_secs(300));
/// Likewise (`--authorization-webhook-cache-unauthorized-ttl`).
pub const AUTH_DENY_TTL: DurationWord = DurationWord(Duration::from_secs(30));
/// A permission that was taken away ends streams within half a minute.
pub const REAUTHORIZE_INTERVAL: DurationWord = DurationWord(Duration::from_secs(30));
/// As long as the API server itself goes on with a permission that it cannot ask for again.
pub const REAUTHORIZE_GRACE: DurationWord = DurationWord(Duration::from_secs(300));
/// As front proxies and kube-apiserver's aggregation layer have it.
pub const REQUESTHEADER_USERNAME_HEADERS: &str = "X-Remote-User";
/// Only newer front proxies tell it; nobody else may be able to set it.
pub const REQUESTHEADER_UID_HEADERS: &str = "";
/// As front proxies and kube-apiserver's aggregation layer have it.
pub const REQUESTHEADER_GROUP_HEADERS: &str = "X-Remote-Group";
/// Likewise.
pub const REQUESTHEADER_EXTRA_HEADERS_PREFIX: &str = "X-Remote-Extra-";

/// As kube-apiserver rotates.
pub const AUDIT_LOG_MAXSIZE: u64 = 100;
/// A gigabyte of audit events, and the file that is written to.
pub const AUDIT_LOG_MAXBACKUP: usize = 10;
/// The number of files bounds them already.
pub const AUDIT_LOG_MAXAGE: u64 = 0;

/// Everything but what the next list names.
pub const CACHE_RESOURCES: &str = "*";
/// What holds secrets or tokens in clear must not lie in memory. Metrics are computed for each request and cannot be watched.
pub const PASSTHROUGH_RESOURCES: &str = "secrets,*.oauth.openshift.io,tokens.management.cattle.io,\
    clusterregistrationtokens.management.cattle.io,tokens.ext.cattle.io,\
    *.metrics.k8s.io,*.custom.metrics.k8s.io,*.external.metrics.k8s.io";

/// The API server's own upper bound of a watch cache's history (docs/PROTOCOL.md §10, "history window").
pub const RING_EVENTS_MAX: usize = 102_400;
/// Holds the API server's 75 s of history at about 1,000 events a second of 3 KiB; a ring is paid for only as it fills.
pub const RING_BYTES_MAX: ByteLen = ByteLen(256 << 20);
/// As long as the API server keeps events itself, so that a client that could resume there can resume here.
pub const RING_AGE_MIN: DurationWord = DurationWord(Duration::from_secs(75));
/// Ten times the 1.5 MiB that etcd takes for one object, since JSON may be longer than what etcd stores.
pub const FRAME_LEN_MAX: ByteLen = ByteLen(16 << 20);
/// A controller that restarts or is rolled out is back within minutes, and must not cost a relist.
pub const IDLE_RESOURCE_TIMEOUT: DurationWord = DurationWord(Duration::from_secs(600));
/// A person does not notice 2 ms and no controller acts sooner, while under load many events share one write.
pub const COALESCE_DELAY_MAX: DurationWord = DurationWord(Duration::from_millis(2));

/// As many as the system lets the process open, less what upstream needs.
pub const CONNECTIONS_MAX: usize = 0;
/// Idle ones cost 2 to 24 KiB each: a few gigabytes at most.
pub const WATCHES_MAX: usize = 250_000;
/// Enough to fill any network with slow clients among them; each holds some 300 KiB, mostly in the kernel.
pub const LISTS_MAX: usize = 256;
/// One that waits costs its connection, so about as many as there may be of these: a herd is queued, not sent away to
/// come again.
pub const LISTS_WAITING_MAX: usize = 16_384;
/// Half of the minute within which the API server's answers begin.
pub const LIST_WAIT_MAX: DurationWord = DurationWord(Duration::from_secs(30));
/// Slower than 32 KB/s, with the frames that lists are sent in. A busy machine does not look like that.
pub const LIST_STALL_MAX: DurationWord = DurationWord(Duration::from_secs(2));
/// The connections upstream hold so many: 64 of HTTP/2 with 90 streams each.
pub const FORWARDED_REQUESTS_MAX: usize = 5_760;
/// As many; one lane for each, so that neither takes the other's.
pub const FORWARDED_WATCHES_MAX: usize = 5_760;
/// Each holds two connections and two buffers: 320 MB and 8,192 open files at most.
pub const TUNNELS_MAX: usize = 4_096;
/// What caches need is not known beforehand, so a bound is for the operator to set.
pub const MEMORY_MAX: ByteLen = ByteLen(0);

/// Kubernetes kills after 30 s unless told otherwise: 5 s remain for the last words.
pub const DRAIN_TIMEOUT: DurationWord = DurationWord(Duration::from_secs(25));
/// People start it by hand first; deployments ask for JSON.
pub const LOG_FORMAT: LogFormat = LogFormat::Text;
/// Changes of state, never one line per event.
pub const LOG_LEVEL: LogLevel = LogLevel::Info;
/// One thread per CPU that the process may use: work never blocks.
pub const WORKER_THREADS: usize = 0;

/// One object as a small Pod is: 1.2 KB of JSON, the size the figures of other servers are given for.
pub const OBJECT_LEN: ByteLen = ByteLen(1_200);
/// Events a second: visible on a screen, negligible for a CPU.
pub const CHURN: u32 = 50;
/// A thousand watchers fit one small machine and are what a middle-sized cluster's node agents are.
pub const WATCHERS: usize = 1_000;

/// A cluster that a newcomer can picture: many pods, some config maps.
#[must_use]
pub fn objects() -> Vec<ObjectCount> {
    vec![
        ObjectCount::new("pods", 1_000),
        ObjectCount::new("configmaps", 100),
    ]
}
