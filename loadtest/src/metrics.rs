//! A server's metrics, in Prometheus' text format.

use anyhow::{Result, ensure};
use hyper::{Method, StatusCode};

use crate::client::Client;
use crate::target::Target;

/// The series with their values.
#[derive(Debug, Clone)]
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Reads them; none if the server has no such page.
    pub async fn read(server: Target) -> Result<Option<Self>> {
        let mut client = Client::new(server);
        let (status, body) = client.call(Method::GET, "/metrics", Vec::new()).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        ensure!(status == StatusCode::OK, "metrics: {status}");
        Ok(Some(Self::parse(&String::from_utf8_lossy(&body))))
    }

    /// The same of a gateway at its admin address, such as `http://127.0.0.1:9090`.
    pub async fn of_gateway(admin_url: &str) -> Result<Self> {
        let metrics = Self::read(Target::new(admin_url, None, None)?).await?;
        Ok(metrics.unwrap_or(Self(Vec::new())))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// The values of all series of a name that have these labels.
    fn values(&self, name: &str, labels: &[&str]) -> impl Iterator<Item = f64> {
        let is_of = move |series: &str| {
            let (of, rest) = series.split_once('{').unwrap_or((series, ""));
            of == name && labels.iter().all(|label| rest.contains(label))
        };
        let series = self.0.iter();
        series.filter_map(move |(series, value)| is_of(series).then_some(*value))
    }

    /// The sum over all labels.
    pub fn sum(&self, name: &str) -> f64 {
        self.values(name, &[]).sum()
    }

    /// Whether a series with these labels has a value other than 0.
    pub fn is_set(&self, name: &str, labels: &[&str]) -> bool {
        self.values(name, labels).any(|value| value != 0.0)
    }

    /// Watches that a gateway has open at its API server, forwarded ones included.
    pub fn upstream_watches(&self) -> f64 {
        self.sum("kube_fanout_upstream_watches_active")
            + self.sum("kube_fanout_upstream_table_watches_active")
            + self.sum("kube_fanout_passthrough_requests_active")
    }

    /// A gateway's requests that have reached its API server: lists, watches and forwarded ones.
    pub fn upstream_requests(&self) -> f64 {
        self.sum("kube_fanout_upstream_lists_total")
            + self.sum("kube_fanout_upstream_watch_ends_total")
            + self.sum("kube_fanout_upstream_watches_active")
            + self.sum("kube_fanout_passthrough_requests_total")
    }

    /// Bytes that a gateway's API server has sent.
    pub fn upstream_bytes(&self) -> f64 {
        self.sum("kube_fanout_upstream_bytes_received_total")
            + self.sum("kube_fanout_passthrough_received_bytes_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_by_name_and_labels() {
        let metrics = Metrics::parse(
            "# TYPE a_total gauge\n\
             a_total{resource=\"pods\",state=\"ready\"} 1\n\
             a_total{resource=\"x y\",state=\"filling\"} 1e3\n\
             a_total_more 4\n",
        );
        assert_eq!((metrics.sum("a_total"), metrics.sum("a")), (1_001.0, 0.0));
        let is_set = |state| metrics.is_set("a_total", &["resource=\"pods\"", state]);
        assert!(is_set("state=\"ready\"") && !is_set("state=\"filling\""));
    }
}
