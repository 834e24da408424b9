//! Changes the status of pods at a steady rate, always of the same pods in the same order.

use std::time::Duration;

use anyhow::{Context, Result};
use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Fleet;
use crate::http2::{Call, Http2Client};
use crate::target::Target;
use crate::wire::event::first_version;

/// Number of concurrent writes.
const LANES: usize = 16;
/// Step from pod to pod: a prime, so that all namespaces and nodes are used.
const STRIDE: usize = 7_919;

/// What to change, how fast and how long.
#[derive(Debug, Clone, Copy)]
pub struct PodChurn {
    pub fleet: Fleet,
    /// Changes a second.
    pub rate: f64,
    pub duration: Duration,
}

/// The outcome of the changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodWrites {
    pub count: usize,
    /// The newest version among them.
    pub last: u64,
    pub duration: Duration,
}

impl PodChurn {
    /// Makes the changes; `turn` distinguishes one run from the next.
    pub async fn run(self, target: &Target, turn: usize) -> Result<PodWrites> {
        let http2 = Http2Client::connect(target).await?;
        let started = Instant::now();
        let count = (self.rate * self.duration.as_secs_f64()) as usize;
        let mut lanes = JoinSet::new();
        for lane in 0..LANES {
            let http2 = http2.clone();
            lanes.spawn(async move {
                let mut last = 0;
                for at in (lane..count).step_by(LANES) {
                    tokio::time::sleep_until(
                        started + Duration::from_secs_f64(at as f64 / self.rate),
                    )
                    .await;
                    last = last.max(self.change(&http2, at, turn).await?);
                }
                Ok::<_, anyhow::Error>(last)
            });
        }
        let mut last = 0;
        while let Some(lane) = lanes.join_next().await {
            last = last.max(lane??);
        }
        Ok(PodWrites {
            count,
            last,
            duration: started.elapsed(),
        })
    }

    async fn change(&self, http2: &Http2Client, at: usize, turn: usize) -> Result<u64> {
        let number = at.wrapping_mul(STRIDE) % self.fleet.pods.max(1);
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/status",
            self.fleet.namespace(number),
            self.fleet.name(number)
        );
        let status = self.fleet.status(number, turn);
        let call = Call {
            method: Method::PATCH,
            path: &path,
            accept: "application/json",
            content: "application/merge-patch+json",
            agent: "kubelet",
            body: serde_json::to_vec(&json!({"status": status}))?,
        };
        let body = http2.demand(call, &[]).await?;
        first_version(&body).with_context(|| format!("{path}: an answer without a version"))
    }
}
