//! Load tests for kube-fanout and any Kubernetes API server: swarms of clients that check what they get.
mod verify;
mod wire;
fn main() {}
