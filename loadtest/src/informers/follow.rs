//! One informer in a process of its own, so that CPU and memory of the process are the informer's. It speaks the protocol of
//! `tests/real/apiserver/informer` on its standard streams: a line when it has synced, then an answer to each line, until the input ends.

pub(super) mod kube_rs;
pub(super) mod own;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use k8s_openapi::api::core::v1::Pod;
use kube_fanout::informer::{ListWatch, Packed};
use kube_fanout::resource::Gvr;

use crate::command::Subcommand;
use crate::pods::digest;
use crate::process::Usage;

/// Runs one informer in a process of its own; it answers lines on its input.
#[derive(Debug, Clone, Parser)]
#[command(name = "follow")]
pub struct Follow {
    /// Kubeconfig of the server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Which informer.
    #[arg(long, value_enum)]
    pub reader: InformerKind,
}

impl Subcommand for Follow {
    fn execute(&self) -> Result<bool> {
        run(self).map(|()| true)
    }
}

/// The informers that are part of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InformerKind {
    /// Ours, with k8s-openapi's pods.
    Typed,
    /// The same, without managed fields.
    TypedBare,
    /// Ours, with pods kept as bytes and decoded on access.
    Packed,
    /// The same, without managed fields.
    PackedBare,
    /// Ours, with objects of any kind kept as bytes.
    Raw,
    /// Ours, metadata only.
    Metadata,
    /// kube-rs's reflector, with k8s-openapi's pods.
    KubeRs,
    /// The same, without managed fields.
    KubeRsBare,
    /// kube-rs's reflector, with dynamic objects.
    KubeRsDynamic,
    /// kube-rs's reflector, metadata only.
    KubeRsMetadata,
}

/// Counters of an informer's handler; it is the only writer, so their order does not matter.
#[derive(Debug, Default)]
pub struct HandlerProgress {
    updates: AtomicU64,
    version: AtomicU64,
    silence: Mutex<Silence>,
}

/// The time between changes.
#[derive(Debug, Default)]
struct Silence {
    changed_at: Option<Instant>,
    longest: Duration,
}

impl HandlerProgress {
    /// Counts an object that changed, was added after the initial list, or was deleted.
    pub fn change(&self, resource_version: u64) {
        // Relaxed: readers poll these figures until they are high enough.
        self.updates.fetch_add(1, Ordering::Relaxed);
        self.version.fetch_max(resource_version, Ordering::Relaxed);
        let now = Instant::now();
        let mut silence = self.silence.lock();
        if let Some(before) = silence.changed_at.replace(now) {
            silence.longest = silence.longest.max(now - before);
        }
    }

    /// The longest time between two changes since the last call; the time until the next change does not count.
    pub fn take_longest_silence(&self) -> Duration {
        std::mem::take(&mut *self.silence.lock()).longest
    }
}

pub struct InformerHandle {
    /// Counters of its handler.
    pub seen: Arc<HandlerProgress>,
    /// Resolves when the store has the initial list.
    pub synced: BoxFuture<'static, Result<()>>,
    /// The lines `namespace/name/resourceVersion` of the store.
    pub lines: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Objects in the store.
    pub len: Box<dyn Fn() -> usize + Send + Sync>,
    /// How often it asked for all objects.
    pub lists: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Stops it.
    pub end: BoxFuture<'static, ()>,
}

/// Runs one informer until standard input ends.
fn run(flags: &Follow) -> Result<()> {
    // As many threads as the machine has processors, which is tokio's default.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let started = Instant::now();
        let (config, pods) = (&flags.kubeconfig, Gvr::new("", "v1", "pods"));
        let typed = ListWatch::<Pod>::of_kind;
        let packed = ListWatch::<Packed<Pod>>::packed_kind;
        let informer = match flags.reader {
            InformerKind::Typed => own::start(config, typed()).await?,
            InformerKind::TypedBare => own::start(config, typed().without_managed_fields()).await?,
            InformerKind::Packed => own::start(config, packed()).await?,
            InformerKind::PackedBare => {
                own::start(config, packed().without_managed_fields()).await?
            }
            InformerKind::Raw => own::start(config, ListWatch::raw(&pods)).await?,
            InformerKind::Metadata => own::start(config, ListWatch::metadata(&pods)).await?,
            InformerKind::KubeRs => kube_rs::typed(config).await?,
            InformerKind::KubeRsBare => kube_rs::typed_bare(config).await?,
            InformerKind::KubeRsDynamic => kube_rs::dynamic(config).await?,
            InformerKind::KubeRsMetadata => kube_rs::metadata(config).await?,
        };
        follow(informer, started).await
    })
}

async fn follow(informer: InformerHandle, started: Instant) -> Result<()> {
    let InformerHandle {
        seen,
        synced,
        lines,
        len,
        end,
        ..
    } = informer;
    synced.await?;
    let sync_ms = started.elapsed().as_secs_f64() * 1e3;
    // Read before the store is listed.
    let used = Usage::own()?;
    say(
        "synced",
        Some(used),
        json!({"syncMs": sync_ms, "objects": len()}),
    );
    let mut asked = BufReader::new(stdin()).lines();
    while let Some(line) = asked.next_line().await? {
        // Relaxed: see [`HandlerProgress`].
        let progress = json!({
            "updates": seen.updates.load(Ordering::Relaxed),
            "resourceVersions": [seen.version.load(Ordering::Relaxed).to_string()],
        });
        match line.as_str() {
            "usage" => say("usage", Some(Usage::own()?), progress),
            _ => {
                let held = digest(lines());
                let hashes = json!({ held.hash: 1 });
                say(
                    "state",
                    None,
                    json!({"objects": [held.objects], "hashes": hashes}),
                );
            }
        }
    }
    end.await;
    Ok(())
}

fn say(event: &str, used: Option<Usage>, mut fields: Value) {
    fields["event"] = event.into();
    if let Some(used) = used {
        fields["cpuMs"] = (used.cpu.as_secs_f64() * 1e3).into();
        fields["rss"] = used.rss.into();
        fields["peakRss"] = used.peak_rss.into();
    }
    println!("{fields}");
}
