//! The listener for operators: places of its own, which no number of other clients can take (decision 34).

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::GatewayError;
use crate::admission::Admission;
use crate::config::{AdmissionLimits, ForwardLimits, OpenFiles, ServeSettings};
use crate::connection::listener;
use crate::metrics::Metrics;
use crate::passthrough::Passthrough;

/// Some people and their tools, not controllers.
const CONNECTIONS_MAX: usize = 64;
const WATCHES_MAX: usize = 64;
const LISTS_MAX: usize = 4;
const LISTS_WAITING_MAX: usize = 64;
const FORWARDS: ForwardLimits = ForwardLimits {
    requests_max: 32,
    watches_max: 32,
    tunnels_max: 16,
};
/// Open files that all of these take, if upstream speaks HTTP/1.1.
const FILES: usize =
    CONNECTIONS_MAX + FORWARDS.requests_max + FORWARDS.watches_max + FORWARDS.tunnels_max;
/// However few files there are, of those for clients no more than one in so many.
const FILES_SHARE: usize = 4;

/// What operators' requests take places of.
pub(super) struct OperatorLimits {
    pub(super) admission: Admission,
    pub(super) passthrough: Passthrough,
}

/// Opens a port for clients.
pub(super) fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, GatewayError> {
    listener::bind(address).map_err(|source| GatewayError::Listen {
        flag,
        address,
        source,
    })
}

/// Places of operators' lists and watches, within the times that `of_clients` says.
pub(super) fn admission(of_clients: AdmissionLimits, metrics: &Metrics) -> Admission {
    Admission::new(limits(of_clients), Some(metrics.admission())).for_operators()
}

/// The same way upstream, with places of operators.
pub(super) fn bounded(passthrough: Passthrough) -> Passthrough {
    passthrough.bounded(FORWARDS, files())
}

/// Takes what operators have from the bounds of everybody else: open files, and requests that connections upstream have room for.
pub(super) fn set_apart(settings: &mut ServeSettings) {
    if settings.operator_listen.is_none() {
        return;
    }
    let clients = OpenFiles::of_process(settings.admission.connections_max).clients;
    let least = clients.min(1);
    settings.admission.connections_max = (clients - FILES.min(clients / FILES_SHARE)).max(least);
    let all = ForwardLimits::default();
    let forwards = &mut settings.forwards;
    let rest = |wanted: usize, all: usize, operators: usize| wanted.min(all - operators);
    *forwards = ForwardLimits {
        requests_max: rest(
            forwards.requests_max,
            all.requests_max,
            FORWARDS.requests_max,
        ),
        watches_max: rest(forwards.watches_max, all.watches_max, FORWARDS.watches_max),
        tunnels_max: forwards.tunnels_max,
    };
}

fn limits(of_clients: AdmissionLimits) -> AdmissionLimits {
    AdmissionLimits {
        connections_max: CONNECTIONS_MAX,
        watches_max: WATCHES_MAX,
        lists_max: LISTS_MAX,
        lists_waiting_max: LISTS_WAITING_MAX,
        // Whoever is to find out why memory is short must see something.
        memory_max: 0,
        ..of_clients
    }
}

fn files() -> OpenFiles {
    OpenFiles {
        clients: CONNECTIONS_MAX,
        refusals: 1,
        forwarded_requests: FORWARDS.requests_max,
        forwarded_watches: FORWARDS.watches_max,
        tunnels: FORWARDS.tunnels_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_places_are_taken_from_everybody_elses() {
        let mut settings = ServeSettings::embedded("http://127.0.0.1:1".parse().unwrap());
        let before = (settings.admission, settings.forwards);
        set_apart(&mut settings);
        assert_eq!((settings.admission, settings.forwards), before);
        settings.operator_listen = Some(settings.listen);
        let clients = OpenFiles::of_process(0).clients;
        set_apart(&mut settings);
        assert!(settings.admission.connections_max < clients);
        assert!(settings.admission.connections_max >= clients - FILES);
        let all = ForwardLimits::default();
        let together = settings.forwards.requests_max + FORWARDS.requests_max;
        assert_eq!(together, all.requests_max);
        let together = settings.forwards.watches_max + FORWARDS.watches_max;
        assert_eq!(together, all.watches_max);
    }
}
