//! Load tests for kube-fanout and any Kubernetes API server.

fn main() {}
