//! Creates the missing pods as fast as the server accepts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hyper::{Method, StatusCode};
use tokio::task::JoinSet;

use super::Fleet;
use crate::client::excerpt;
use crate::http2::{Call, Http2Client};
use crate::target::Target;

/// Number of connections: a server handles each on a single thread.
const CONNECTIONS: usize = 2;
const LANES: usize = 64;

#[derive(Debug)]
pub struct SeedOutcome {
    pub made: usize,
    pub duration: Duration,
    /// Length of the last response, bytes: a pod as the server returns it.
    pub pod_len: usize,
}

/// Creates all pods of the fleet.
pub async fn seed(target: &Target, fleet: Fleet) -> Result<SeedOutcome> {
    let started = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let mut lanes = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Http2Client::connect(target).await?);
    }
    for lane in 0..LANES {
        let http2 = connections[lane % CONNECTIONS].clone();
        let next = Arc::clone(&next);
        lanes.spawn(async move {
            let (mut made, mut pod_len) = (0, 0);
            loop {
                // Relaxed: each number is taken once, and nothing else depends on it.
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= fleet.pods {
                    return Ok::<_, anyhow::Error>((made, pod_len));
                }
                if let Some(len) = create(&http2, &fleet, number).await? {
                    made += 1;
                    pod_len = len;
                }
            }
        });
    }
    let (mut made, mut pod_len) = (0, 0);
    while let Some(lane) = lanes.join_next().await {
        let (of_lane, len) = lane??;
        made += of_lane;
        pod_len = pod_len.max(len);
    }
    Ok(SeedOutcome {
        made,
        duration: started.elapsed(),
        pod_len,
    })
}

/// The length of the pod, if it was created.
async fn create(http2: &Http2Client, fleet: &Fleet, number: usize) -> Result<Option<usize>> {
    let path = format!("/api/v1/namespaces/{}/pods", fleet.namespace(number));
    let call = Call {
        method: Method::POST,
        path: &path,
        accept: "application/json",
        content: "application/json",
        agent: "kube-controller-manager",
        body: serde_json::to_vec(&fleet.pod(number))?,
    };
    let (status, body) = http2.call(call).await?;
    if status == StatusCode::CONFLICT {
        return Ok(None);
    }
    anyhow::ensure!(
        status.is_success(),
        "POST {path}: {status}: {}",
        excerpt(&body)
    );
    Ok(Some(body.len()))
}
