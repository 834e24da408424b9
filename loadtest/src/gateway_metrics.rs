//! A gateway's metrics: what reached its API server.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use hyper::{Method, StatusCode};

use crate::client::Client;
use crate::target::Target;

/// Sums over all labels, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayMetrics(BTreeMap<String, f64>);

impl GatewayMetrics {
    /// Reads them from the gateway's admin address, such as `http://127.0.0.1:9090`.
    pub async fn read(admin_url: &str) -> Result<Self> {
        let mut client = Client::new(Target::new(admin_url, None, None)?);
        let (status, body) = client.call(Method::GET, "/metrics", Vec::new()).await?;
        ensure!(status == StatusCode::OK, "metrics: {status}");
        Ok(Self::parse(&String::from_utf8_lossy(&body)))
    }

    fn parse(text: &str) -> Self {
        let mut sums = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let name = series.split_once('{').map_or(series, |(name, _)| name);
            if let Ok(value) = value.parse::<f64>() {
                *sums.entry(name.to_owned()).or_default() += value;
            }
        }
        Self(sums)
    }

    fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Watches that are open at the API server, forwarded ones included.
    pub fn upstream_watches(&self) -> f64 {
        self.of("kube_fanout_upstream_watches_active")
            + self.of("kube_fanout_upstream_table_watches_active")
            + self.of("kube_fanout_passthrough_requests_active")
    }

    /// Requests that have reached the API server: lists, watches and forwarded ones.
    pub fn upstream_requests(&self) -> f64 {
        self.of("kube_fanout_upstream_lists_total")
            + self.of("kube_fanout_upstream_watch_ends_total")
            + self.of("kube_fanout_upstream_watches_active")
            + self.of("kube_fanout_passthrough_requests_total")
    }

    /// Bytes that the API server has sent.
    pub fn upstream_bytes(&self) -> f64 {
        self.of("kube_fanout_upstream_bytes_received_total")
            + self.of("kube_fanout_passthrough_received_bytes_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_name_are_added_up() {
        let metrics = GatewayMetrics::parse(
            "# TYPE kube_fanout_upstream_watches_active gauge\n\
             kube_fanout_upstream_watches_active{resource=\"pods\"} 1\n\
             kube_fanout_upstream_watches_active{resource=\"a b\"} 1\n\
             kube_fanout_upstream_lists_total{resource=\"pods\"} 3\n\
             kube_fanout_passthrough_requests_total 1e3\n",
        );
        assert_eq!(metrics.upstream_watches(), 2.0);
        assert_eq!(metrics.upstream_requests(), 1_005.0);
        assert_eq!(metrics.upstream_bytes(), 0.0);
    }
}
