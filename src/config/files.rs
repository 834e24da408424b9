//! How the files that the process may open are divided: clients, connections to upstream, and everything else. Sets no limit
//! itself.

use rustix::process::{Resource, getrlimit};

/// Without a limit of open files: more than one machine's ports and memory allow.
const UNLIMITED: usize = 1 << 20;
/// The gateway's own: ports and those who ask the admin port (32), the runtime, logs, files that are read now and then.
const OWN_MIN: usize = 64;
/// One in so many is its own, beyond that: clients that are told to go away, connections to upstream that are idle.
const OWN_SHARE: usize = 32;
/// For caches one in so many. Over HTTP/1.1 each holds a connection with its watch; over HTTP/2 many share one.
const CACHES_SHARE: usize = 16;
/// More caches than that no cluster has.
const CACHES_MAX: usize = 4_096;
/// One in so many is for clients that are told that there are too many of them.
const REFUSALS_SHARE: usize = 64;
/// It takes them some milliseconds, or as long as they may take.
const REFUSALS_MAX: usize = 64;
/// Of a process with few files upstream gets one in so many.
const UPSTREAM_SHARE: usize = 4;
/// However many connections of clients are wanted, one in so many of its share stays upstream's.
const UPSTREAM_LEAST: usize = 8;
/// All that is ever forwarded at once.
const UPSTREAM_MAX: usize = 16 << 10;

/// Open files by use. Together never more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Connections of clients, those that became tunnels included.
    pub clients: usize,
    /// Connections of clients that are only told to go away.
    pub refusals: usize,
    /// Connections to upstream for forwarded requests that end soon. Over HTTP/1.1 each has its own, over HTTP/2 many share one.
    pub forwarded_requests: usize,
    /// The same for forwarded watches, logs and the like.
    pub forwarded_watches: usize,
    /// Connections to upstream that carry upgraded ones.
    pub tunnels: usize,
}

impl OpenFiles {
    /// Divides what the process may open at present. `clients_max`: connections of clients that were asked for, or 0. They may be fewer
    /// than that: no number of clients takes all files from upstream.
    #[must_use]
    pub fn of_process(clients_max: usize) -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let files = files.map_or(UNLIMITED, |files| {
            usize::try_from(files).unwrap_or(usize::MAX).min(UNLIMITED)
        });
        Self::divided(files, clients_max)
    }

    fn divided(files: usize, clients_max: usize) -> Self {
        let own = OWN_MIN + files / OWN_SHARE + (files / CACHES_SHARE).min(CACHES_MAX);
        let rest = files.saturating_sub(own);
        let share = (files / UPSTREAM_SHARE).min(UPSTREAM_MAX);
        let clients = match clients_max {
            0 => rest.saturating_sub(share),
            wanted => wanted.min(rest.saturating_sub(share / UPSTREAM_LEAST)),
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
            let open = OpenFiles::divided(files, 0);
            let upstream = open.forwarded_requests + open.forwarded_watches + open.tunnels;
            let caches = (files / CACHES_SHARE).min(CACHES_MAX);
            let used = open.clients + open.refusals + upstream + caches + OWN_MIN;
            assert!(used <= files, "{files}: {open:?}");
            // A client with a request that is forwarded over HTTP/1.1 needs two.
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
                let open = OpenFiles::divided(files, wanted);
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
        assert_eq!(OpenFiles::divided(20_000, 5_000).clients, 5_000);
    }
}
