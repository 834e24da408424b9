//! Pods as controllers and kubelets write them, created in numbers.

mod body;

use anyhow::Result;
use clap::Args;

use crate::http2::{Created, create_all};
use crate::target::Target;

/// A set of pods; a pod is identified by its number.
#[derive(Debug, Clone, Copy, Args)]
pub struct Fleet {
    /// Number of pods that the server must hold; missing ones are created.
    #[arg(long, default_value_t = 100_000)]
    pub pods: usize,
    /// Namespaces that they are spread over.
    #[arg(long, default_value_t = 50)]
    pub namespaces: usize,
    /// Nodes that they are spread over.
    #[arg(long, default_value_t = 200)]
    pub nodes: usize,
}

impl Fleet {
    pub fn namespace(&self, number: usize) -> String {
        format!("team-{:02}", number % self.namespaces.max(1))
    }

    pub fn name(&self, number: usize) -> String {
        format!("{}-{number:05x}", self.replica_set(number))
    }

    pub fn node(&self, number: usize) -> usize {
        // Spread differently than the namespaces.
        (number / self.namespaces.max(1) + number) % self.nodes.max(1)
    }

    /// The deployment of a pod: about ten pods of its namespace.
    fn deployment(&self, number: usize) -> usize {
        number / self.namespaces.max(1) / 10
    }

    fn replica_set(&self, number: usize) -> String {
        let deployment = self.deployment(number);
        format!("orders-api-{deployment}-{deployment:010x}")
    }
}

/// Creates the pods of a fleet that are missing.
pub async fn seed(target: &Target, fleet: Fleet) -> Result<Created> {
    let pods = (0..fleet.pods).map(|number| {
        let namespace = fleet.namespace(number);
        (
            format!("/api/v1/namespaces/{namespace}/pods"),
            fleet.pod(number),
        )
    });
    create_all(target, pods).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn a_pod_loses_nothing_when_it_is_read_as_a_typed_one() {
        let fleet = Fleet {
            pods: 20_000,
            namespaces: 50,
            nodes: 200,
        };
        let pod = fleet.pod(4_711);
        let typed: Pod = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(serde_json::to_value(typed).unwrap(), pod);
    }
}
