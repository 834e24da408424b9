//! The API server's own count of watches that it has terminated because their clients were too slow. Behind a gateway there should be none.

use anyhow::Result;
use hyper::{Method, StatusCode};

use crate::client::Client;
use crate::target::Target;

/// The counter, with one line for each resource.
const COUNTER: &str = "apiserver_terminated_watchers_total{";

/// The count since the server's start; none if the server has no such counter, like the embedded one.
pub async fn terminations(server: &Target) -> Result<Option<f64>> {
    let mut client = Client::new(server.clone());
    let (status, body) = client.call(Method::GET, "/metrics", Vec::new()).await?;
    let is_there = status == StatusCode::OK;
    Ok(is_there.then(|| sum(&String::from_utf8_lossy(&body))))
}

/// The sum over the counter's lines: a counter without increments has no line.
fn sum(metrics: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(COUNTER));
    let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
    lines.filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_resources_count() {
        let metrics = "# HELP apiserver_terminated_watchers_total [ALPHA] Counter\n\
            apiserver_terminated_watchers_total{group=\"\",resource=\"pods\"} 2\n\
            apiserver_terminated_watchers_total{group=\"apps\",resource=\"x y\"} 3\n\
            apiserver_watch_events_total 9\n";
        assert_eq!(sum(metrics), 5.0);
        assert_eq!(sum("# nothing\n"), 0.0);
    }
}
