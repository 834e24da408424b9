//! Several API servers: the task that checks them, and their metrics.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::metrics::{
    EndpointFailureLabel, EndpointMetrics, EndpointStateLabel, Metrics, TaskKind,
};
use crate::task::restart_on_end;
use crate::upstream::client::{Client, EndpointFailure, EndpointRecorder, EndpointState};

/// Counts in metrics what happens to each API server.
#[derive(Debug)]
struct MeteredEndpoints(Vec<EndpointMetrics>);

/// Records the API servers of a client if there are several. A single one has no metrics of its own.
pub(super) fn record(client: &Client, metrics: &Metrics) {
    let names = client.endpoints();
    if names.len() > 1 {
        let endpoints = names.iter().map(|name| metrics.endpoint(name));
        client.record_endpoints(Arc::new(MeteredEndpoints(endpoints.collect())));
    }
}

/// Starts the task that checks several API servers.
pub(super) fn follow(tasks: &mut JoinSet<()>, client: &Client, metrics: &Metrics) {
    let (client, ends) = (client.clone(), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::Endpoints, &ends, || client.follow_endpoints()).await;
    });
}

impl EndpointRecorder for MeteredEndpoints {
    fn state(&self, index: usize, state: EndpointState) {
        self.0[index].state.set(match state {
            EndpointState::Unchecked => EndpointStateLabel::Unchecked,
            EndpointState::Ready => EndpointStateLabel::Ready,
            EndpointState::Unready => EndpointStateLabel::Unready,
            EndpointState::Unreachable => EndpointStateLabel::Unreachable,
            EndpointState::Foreign => EndpointStateLabel::Foreign,
        });
    }

    fn active(&self, index: usize) {
        for (other, endpoint) in self.0.iter().enumerate() {
            endpoint.active.set(i64::from(other == index));
        }
    }

    fn activated(&self, index: usize) {
        self.active(index);
        self.0[index].activations.inc();
    }

    fn failed(&self, index: usize, failure: EndpointFailure) {
        self.0[index].failures.inc(match failure {
            EndpointFailure::Connect => EndpointFailureLabel::Connect,
            EndpointFailure::Certificate => EndpointFailureLabel::Certificate,
            EndpointFailure::Broken => EndpointFailureLabel::Broken,
            EndpointFailure::Timeout => EndpointFailureLabel::Timeout,
            EndpointFailure::Status => EndpointFailureLabel::Status,
            EndpointFailure::Foreign => EndpointFailureLabel::Foreign,
        });
    }
}
