//! Gateways that are killed and started again with little memory: the cache is back from its checkpoint each time, with as much of its
//! history as fits, and the process stays within its bound.
//!
//! Ten restarts at each bound, with their figures:
//!
//! ```text
//! cargo test --test it -- --ignored --nocapture memory_restart::
//! ```

#![allow(clippy::print_stdout, reason = "figures of a measurement")]

use std::path::PathBuf;

use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;

use crate::memory_budget::{metric, text, until};
use crate::support::client::CONFIGMAPS;
use crate::support::process::GatewayProcess;

const OBJECTS: usize = 8_000;
const OBJECT_LEN: usize = 4_000;
/// As many bytes as the objects have.
const WRITES: f64 = 8_000.0;
const WRITES_PER_SECOND: u32 = 1_000;
/// What the process needs for itself grows with the code that it runs and the requests that it answers. The objects of this small form are
/// few, so that it counts.
const PROCESS_GROWTH: u64 = 16 << 20;

/// An API server in this process, and a folder for the checkpoints of gateways.
struct Stage {
    apiserver: Apiserver,
    folder: PathBuf,
}

impl Stage {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
            object_len: OBJECT_LEN,
            ..Options::default()
        };
        Self {
            apiserver: apiserver::start(listener, options).unwrap(),
            folder: std::env::temp_dir().join(format!("kube-fanout-{}", uuid::Uuid::new_v4())),
        }
    }

    fn flags(&self, memory_max: u64) -> Vec<String> {
        let state = self.folder.to_str().unwrap();
        let upstream = format!("http://{}", self.apiserver.address());
        [
            ["--upstream", &upstream],
            ["--state-dir", state],
            ["--pin-resources", "configmaps.v1"],
            ["--ring-age-min", "1s"],
            ["--ring-bytes-max", "64MiB"],
            ["--memory-max", &memory_max.to_string()],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    /// What a gateway has without objects, and what the objects take, in bytes.
    async fn measured(&self) -> (u64, u64) {
        let gateway = GatewayProcess::start(&self.flags(0)).await;
        text(gateway.address, CONFIGMAPS).await;
        let part = async |part: &str| {
            let series = format!("memory_bytes{{part=\"{part}\"}}");
            bytes(&gateway, &series).await
        };
        until("the objects are counted", async || {
            part("objects").await > 0
        })
        .await;
        let measured = (part("process").await, part("objects").await);
        gateway.terminate();
        measured
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The folder may not exist.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn bytes(gateway: &GatewayProcess, series: &str) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes of one process"
    )]
    let bytes = metric(gateway, series).await as u64;
    bytes
}

/// Starts gateways that may have so many tenths of the objects beyond what the process needs without them, and kills each one once writes
/// have filled its history.
async fn check_restarts(tenths: u64, rounds: usize) {
    let stage = Stage::new().await;
    let (process, objects) = stage.measured().await;
    let max = process + PROCESS_GROWTH + objects / 10 * tenths;
    let mebibytes = |bytes: u64| bytes >> 20;
    println!(
        "process {} MiB, objects {} MiB, bound {} MiB",
        mebibytes(process),
        mebibytes(objects),
        mebibytes(max)
    );
    for round in 0..=rounds {
        let gateway = GatewayProcess::start(&stage.flags(max)).await;
        gateway.logged("serving from memory").await;
        let list = text(gateway.address, CONFIGMAPS).await;
        // Churn may have ended between a deletion and the next creation.
        let expected = text(stage.apiserver.address(), CONFIGMAPS).await;
        let count = |list: &str| list.matches("\"uid\":").count();
        assert_eq!(count(&list), count(&expected), "round {round}");
        let lists = metric(&gateway, "upstream_lists_total").await;
        assert_eq!(
            lists, 0.0,
            "round {round}: it continues from the checkpoint"
        );
        let history = bytes(&gateway, "cache_ring_bytes").await;

        stage.apiserver.set_churn(WRITES_PER_SECOND);
        until("the writes have arrived", async || {
            metric(&gateway, "upstream_events_received_total").await >= WRITES
        })
        .await;
        stage.apiserver.set_churn(0);
        let peak = gateway.peak_len();
        let given_up = metric(&gateway, "cache_given_up_total").await;
        println!(
            "{}.{} times: history restored {} MiB, at the end {} MiB, most resident {} MiB of {} MiB",
            tenths / 10,
            tenths % 10,
            mebibytes(history),
            mebibytes(bytes(&gateway, "cache_ring_bytes").await),
            mebibytes(peak),
            mebibytes(max)
        );
        assert!(peak <= max, "round {round}: {peak} of {max}");
        assert_eq!(given_up, 0.0, "round {round}");
        gateway.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_is_back_within_one_and_a_half_times_its_objects() {
    check_restarts(15, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_is_back_within_twice_its_objects() {
    check_restarts(20, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_is_back_within_four_times_its_objects() {
    check_restarts(40, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn ten_restarts_at_each_bound() {
    for tenths in [15, 20, 40] {
        check_restarts(tenths, 10).await;
    }
}
