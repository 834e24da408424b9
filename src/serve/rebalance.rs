//! Sends some clients away, so that they choose a replica again (decision 46).

use super::resources::Resources;
use super::service::Service;

impl<R: Resources> Service<R> {
    /// Ends the connection of one in `requests` requests over HTTP/2, at random, so that clients do not stay with one replica; 0 for none.
    #[must_use]
    pub fn rebalanced(self, requests: usize) -> Self {
        Self {
            requests_per_goaway: requests,
            ..self
        }
    }

    /// Whether a request of this HTTP version is one that ends its connection. Over HTTP/1.1 each watch has a connection of its own, and
    /// its client chooses a replica for each.
    pub(crate) fn sends_away(&self, version: http::Version) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a probability")]
        let requests = self.requests_per_goaway as f64;
        self.requests_per_goaway > 0
            && version == http::Version::HTTP_2
            && crate::resource::fraction() * requests < 1.0
    }
}
