//! The objects that the writer writes: ConfigMaps, Secrets, or pods on nodes.

use tokio::time::Instant;

use super::ADDED_LEN;
use crate::wire::event::{WRITTEN_AT, WriteTime};

/// Kind of the written objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    ConfigMap,
    /// Secrets, written with PUT, with an annotation that gives them their length.
    Secret,
    /// Pods on this many nodes, changed by patching an annotation: most of a pod is immutable.
    Pod {
        nodes: usize,
    },
}

/// The node of pod `number`.
pub fn node_of(number: usize, nodes: usize) -> usize {
    number % nodes.max(1)
}

/// The name of a node.
pub fn node_name(node: usize) -> String {
    format!("node-{node:05}")
}

/// The number in an object's name, such as 17 in `default/pod-17`.
pub fn number_of(name: &str) -> Option<usize> {
    name.rsplit_once('-')?.1.parse().ok()
}

impl Shape {
    /// The object for a write that is sent now and was due then.
    pub fn object(self, name: &str, number: usize, len: usize, due: Instant) -> Vec<u8> {
        let padding = "x".repeat(len.saturating_sub(ADDED_LEN));
        let at = WriteTime::now(due);
        match self {
            Self::ConfigMap => format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","annotations":{{"{WRITTEN_AT}":"{at}"}}}},"data":{{"padding":"{padding}"}}}}"#
            ),
            Self::Secret => format!(
                r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}","annotations":{{"{WRITTEN_AT}":"{at}","loadtest/padding":"{padding}"}}}}}}"#
            ),
            Self::Pod { nodes } => {
                let node = node_name(node_of(number, nodes));
                format!(
                    r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","annotations":{{"{WRITTEN_AT}":"{at}","loadtest/padding":"{padding}"}}}},"spec":{{"nodeName":"{node}","containers":[{{"name":"main","image":"registry.example.com/pause"}}]}}}}"#
                )
            }
        }
        .into_bytes()
    }

    /// The body of a merge patch for a write that is sent now and was due then.
    pub fn change(due: Instant) -> Vec<u8> {
        let at = WriteTime::now(due);
        format!(r#"{{"metadata":{{"annotations":{{"{WRITTEN_AT}":"{at}"}}}}}}"#).into_bytes()
    }

    /// The query of a deletion that takes effect at once.
    pub fn delete_query(self) -> &'static str {
        match self {
            Self::ConfigMap | Self::Secret => "",
            // There is no kubelet that would complete a graceful deletion.
            Self::Pod { .. } => "?gracePeriodSeconds=0",
        }
    }
}
