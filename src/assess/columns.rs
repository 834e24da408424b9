//! The columns of an assessment: what each figure means and where it comes from.

use serde::Serialize;

/// How certain a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FigureBasis {
    /// The API server counted it.
    Measured,
    /// It follows from what was measured, by a formula.
    Calculated,
    /// It is at most this.
    Bound,
    /// A judgement, no figure.
    Judged,
}

impl FigureBasis {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Calculated => "calculated",
            Self::Bound => "bound",
            Self::Judged => "judged",
        }
    }
}

/// One column.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct AssessColumn {
    /// The member of each row in the JSON document.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) basis: FigureBasis,
    pub(super) meaning: &'static str,
}

/// All columns in their order. With an audit log clients are known, and what the metrics count is divided among them.
pub(super) fn columns(has_audit: bool) -> Vec<AssessColumn> {
    use FigureBasis::{Bound, Calculated, Judged, Measured};
    let divided = if has_audit { Calculated } else { Measured };
    let column = |(name, title, basis, meaning)| AssessColumn {
        name,
        title,
        basis,
        meaning,
    };
    [
        ("order", "#", Judged, "Which client to move first: clients with tokens in pods, then others, kube-proxy, kubelets last; among equals by saving (net events and net requests) divided by risk. Empty if it saves nothing, or stays."),
        ("user", "client", Measured, "The user in the audit log. All nodes are one, system:node:*."),
        ("credential", "credential", Measured, "token or certificate, by the credential's id in the audit log; empty if the log has none."),
        ("agent", "agent", Measured, "The program in its User-Agent, without the version. Clients choose it themselves."),
        ("resource", "resource", Measured, "Plural name and group."),
        ("watches", "watches", Measured, "Open watches on average: from the audit log the time that all watches were open divided by its length; without one the mean of both scrapes (apiserver_longrunning_requests)."),
        ("listsPerSecond", "lists/s", Measured, "Lists a second, pages each for themselves."),
        ("eventsPerSecond", "events/s", divided, "Events that the API servers send to these watches (apiserver_watch_events_total). The audit log does not count them: watches of everything have every change, and the rest is divided among the others by the part of the resource that each selects, if events are spread evenly over nodes, namespaces and objects and label selectors select everything; bookmarks and initial events are divided by the number of watches."),
        ("megabytesPerSecond", "MB/s", divided, "Bytes of these events before compression (apiserver_watch_events_sizes) and of lists (apiserver_response_sizes), divided in the same way."),
        ("netRequestsPerSecond", "net req/s", Calculated, "Lists and watch starts that no longer reach the API servers, less what the gateways ask in their place: their own watches, reviews of tokens and rights, and a small list for each read of the newest state."),
        ("netEventsPerSecond", "net events/s", Calculated, "Events that no longer leave the API servers, less those that each gateway watches once for each encoding. Negative if the gateways read more than these clients do: then forward the resource (--passthrough-resources)."),
        ("cpuAtMost", "CPU at most", Bound, "Cores that these events cost the API servers at most: net events times 13.5 µs, a figure of one measurement, and no more than the servers use altogether. Lists are not part of it."),
        ("how", "how", Judged, "inject: the environment of its pods; relay: a relay on each node; kubeconfig: the address in its kubeconfig; none: it stays."),
        ("risk", "risk", Judged, "From 1, one controller, to 6, all nodes; 0 if it stays."),
        ("reason", "why", Judged, "What the risk is, or why it stays."),
    ]
    .map(column)
    .to_vec()
}
