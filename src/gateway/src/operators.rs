//! The operators' port: its own limits, which other clients cannot use up (decision 17).

use crate::admission::Admission;
use crate::config::{AdmissionLimits, ForwardLimits, OpenFiles, ServeSettings};
use crate::metrics::Metrics;
use crate::passthrough::Passthrough;

/// Limits for some people and their tools; controllers use the other port.
const CONNECTIONS_MAX: usize = 64;
const WATCHES_MAX: usize = 64;
const LISTS_MAX: usize = 4;
const LISTS_WAITING_MAX: usize = 64;
const FORWARDS: ForwardLimits = ForwardLimits {
    requests_max: 32,
    watches_max: 32,
    tunnels_max: 16,
};
/// Open files for all of these if upstream speaks HTTP/1.1.
const FILES: usize =
    CONNECTIONS_MAX + FORWARDS.requests_max + FORWARDS.watches_max + FORWARDS.tunnels_max;
/// The operators' files are at most one in this many of the files for clients.
const FILES_SHARE: usize = 4;

/// The limits for operators' requests.
pub(super) struct OperatorLimits {
    pub(super) admission: Admission,
    pub(super) passthrough: Passthrough,
}

/// The admission of operators' lists and watches; its wait times are those of `clients`.
pub(super) fn admission(clients: AdmissionLimits, metrics: &Metrics) -> Admission {
    Admission::new(limits(clients), Some(metrics.admission())).for_operators()
}

/// Applies the operators' limits to a passthrough.
pub(super) fn bounded(passthrough: Passthrough) -> Passthrough {
    passthrough.bounded(FORWARDS, files())
}

/// The limits of all other clients: without the operators' open files, and without their requests on connections to upstream.
pub(super) fn limits_of_clients(settings: &ServeSettings) -> (AdmissionLimits, ForwardLimits) {
    let (admission, forwards) = (settings.admission, settings.forwards);
    if settings.operator_listen.is_none() {
        return (admission, forwards);
    }
    let clients = OpenFiles::of_process(admission.connections_max).clients;
    let connections_max = clients - FILES.min(clients / FILES_SHARE);
    let all = ForwardLimits::default();
    let admission = AdmissionLimits {
        connections_max: connections_max.max(clients.min(1)),
        ..admission
    };
    let forwards = ForwardLimits {
        requests_max: (all.requests_max - FORWARDS.requests_max).min(forwards.requests_max),
        watches_max: (all.watches_max - FORWARDS.watches_max).min(forwards.watches_max),
        ..forwards
    };
    (admission, forwards)
}

/// The operators' limits beside these for clients.
pub(super) fn limits(clients: AdmissionLimits) -> AdmissionLimits {
    AdmissionLimits {
        connections_max: CONNECTIONS_MAX,
        watches_max: WATCHES_MAX,
        lists_max: LISTS_MAX,
        lists_waiting_max: LISTS_WAITING_MAX,
        // Operators must be able to list while memory is short, to find out why.
        memory_max: 0,
        ..clients
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
        let all = (settings.admission, settings.forwards);
        assert_eq!(limits_of_clients(&settings), all);
        settings.operator_listen = Some(settings.listen);
        let clients = OpenFiles::of_process(0).clients;
        let (admission, forwards) = limits_of_clients(&settings);
        assert!(admission.connections_max < clients);
        assert!(admission.connections_max >= clients - FILES);
        let all = ForwardLimits::default();
        let together = forwards.requests_max + FORWARDS.requests_max;
        assert_eq!(together, all.requests_max);
        let together = forwards.watches_max + FORWARDS.watches_max;
        assert_eq!(together, all.watches_max);
    }
}
