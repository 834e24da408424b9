//! Divides the limit of open files among client connections, connections to upstream, and everything else. Only computes; it does not
//! change the limit.

use rustix::process::{Resource, getrlimit};

/// Used if there is no limit of open files: more than the ports and the memory of one machine allow.
const UNLIMITED: usize = 1 << 20;
/// Reserved for the gateway itself: ports, connections to the admin port (at most 64, of which few are open), the runtime, logs, files
/// that are read. [`OWN_SHARE`] adds to it.
const OWN_MIN: usize = 64;
/// One file in this many is reserved in addition: connections of clients that are refused, idle connections to upstream.
const OWN_SHARE: usize = 32;
/// One file in this many is reserved for caches. Over HTTP/1.1 the watch of a cache has its own connection; over HTTP/2 many share one.
const CACHES_SHARE: usize = 16;
/// No cluster has more resources than this.
const CACHES_MAX: usize = 4_096;
/// One file in this many is for connections that are only answered 429 because there are too many.
const REFUSALS_SHARE: usize = 64;
/// Upper bound of these connections. Each is open for milliseconds, or for a few seconds if its client is slow.
const REFUSALS_MAX: usize = 64;
/// Connections to upstream get one file in this many, up to [`UPSTREAM_MAX`].
const UPSTREAM_SHARE: usize = 4;
/// If more client connections are requested than there is room for, upstream keeps one in this many of its share.
const UPSTREAM_KEEP: usize = 8;
/// Maximum number of files for connections to upstream.
const UPSTREAM_MAX: usize = 16 << 10;

/// Number of open files by use. Their sum never exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Client connections, tunnels included.
    pub clients: usize,
    /// Client connections that are only answered 429.
    pub refusals: usize,
    /// Connections to upstream for short forwarded requests. Over HTTP/1.1 each request has its own, over HTTP/2 many share one.
    pub forwarded_requests: usize,
    /// Connections to upstream for forwarded watches, logs and other long requests.
    pub forwarded_watches: usize,
    /// Connections to upstream for upgraded connections.
    pub tunnels: usize,
}

impl OpenFiles {
    /// Divides the process's present limit of open files. `clients_max` is the configured number of client connections, or 0 for
    /// no configured number. The result may be lower, because upstream always keeps some files.
    #[must_use]
    pub fn of_process(clients_max: usize) -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let files = files.map_or(UNLIMITED, |files| {
            usize::try_from(files).unwrap_or(usize::MAX).min(UNLIMITED)
        });
        Self::divide(files, clients_max)
    }

    fn divide(files: usize, clients_max: usize) -> Self {
        let own = OWN_MIN + files / OWN_SHARE + (files / CACHES_SHARE).min(CACHES_MAX);
        let rest = files.saturating_sub(own);
        let share = (files / UPSTREAM_SHARE).min(UPSTREAM_MAX);
        let clients = match clients_max {
            0 => rest.saturating_sub(share),
            max => max.min(rest.saturating_sub(share / UPSTREAM_KEEP)),
        };
        let upstream = rest.saturating_sub(clients).min(share);
        let forwarded = (upstream * 3 / 8).max(1);
        Self {
            clients: clients.max(1),
            refusals: (files / REFUSALS_SHARE).clamp(1, REFUSALS_MAX),
            forwarded_requests: forwarded,
            forwarded_watches: forwarded,
            tunnels: (upstream / 4).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_use_of_files_can_take_those_of_another() {
        for files in [256, 1_024, 4_096, 20_000, 65_536, UNLIMITED] {
            let open = OpenFiles::divide(files, 0);
            let upstream = open.forwarded_requests + open.forwarded_watches + open.tunnels;
            let caches = (files / CACHES_SHARE).min(CACHES_MAX);
            let used = open.clients + open.refusals + upstream + caches + OWN_MIN;
            assert!(used <= files, "{files}: {open:?}");
            // A client with a request that is forwarded over HTTP/1.1 needs two files.
            assert!(open.clients >= files / 3, "{files}: {open:?}");
            assert!(
                open.tunnels >= files.min(UPSTREAM_MAX) / 20,
                "{files}: {open:?}"
            );
        }
    }

    #[test]
    fn connections_that_are_asked_for_leave_upstream_its_least() {
        for files in [256, 1_024, 2_048, 20_000, 65_536] {
            for wanted in [1, files / 3, files - 128, files, 10 * files] {
                let open = OpenFiles::divide(files, wanted);
                let upstream = open.forwarded_requests + open.forwarded_watches + open.tunnels;
                let own = OWN_MIN + files / OWN_SHARE;
                assert!(open.clients <= wanted, "{files}, {wanted}: {open:?}");
                assert!(
                    open.clients + upstream + own <= files,
                    "{files}, {wanted}: {open:?}"
                );
                assert!(
                    upstream >= files.min(UPSTREAM_MAX) / 64,
                    "{files}, {wanted}: {open:?}"
                );
            }
        }
        assert_eq!(OpenFiles::divide(20_000, 5_000).clients, 5_000);
    }
}
