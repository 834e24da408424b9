//! Answers relays on nodes, which ask every few seconds whether the node's clients are to come here. They have no credentials, and learn
//! nothing but that.

use super::body::AnswerBody;
use super::resources::RelayState;
use super::service::{Service, ServiceResponse};
use crate::protocol::status::{PlainText, Status};
use crate::stable_share::share;

/// Keeps the draw of nodes apart from other draws among the same names.
const SALT: &str = "relay";

impl Service {
    pub(super) fn answer_relay(&self, node: Result<&str, Status>) -> ServiceResponse {
        let response = match node {
            Err(status) => status.to_response(),
            Ok(node) => answer(self.resources.relay(), node).to_response(),
        };
        response.map(AnswerBody::whole)
    }
}

/// 404 has HAProxy open no new connections and keep those that are open (`http-check disable-on-404`); 503 has it close them.
fn answer(state: RelayState, node: &str) -> PlainText {
    match state {
        RelayState::NotReady => PlainText::relay(503, "not ready\n"),
        RelayState::Draining => PlainText::relay(404, "draining\n"),
        RelayState::Open(part) if share(SALT, node) < part => PlainText::relay(200, "ok\n"),
        RelayState::Open(_) => PlainText::relay(503, "not a node of --relay-percent\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_part_keeps_the_nodes_of_a_smaller_one() {
        let ok = PlainText::relay(200, "ok\n");
        let nodes: Vec<String> = (0..1_000).map(|node| format!("node-{node}")).collect();
        let mut last = Vec::new();
        for (part, most) in [(0.0, 0), (0.01, 25), (0.1, 140), (0.5, 560), (1.0, 1_000)] {
            let open = RelayState::Open(part);
            let is_in = |node: &&String| answer(open, node) == ok;
            let now: Vec<_> = nodes.iter().filter(is_in).collect();
            assert!(now.len() <= most, "{part}: {}", now.len());
            assert!(last.iter().all(|node| now.contains(node)), "{part}");
            last = now;
        }
        assert_eq!(last.len(), nodes.len());
    }
}
