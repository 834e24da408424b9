//! This project's informers and kube-rs's, in processes that the real suites disturb and compare (`tests/real`). A process answers each line
//! on its input: `lap` with how often its informers listed and how long they got nothing, any other line with the hashes of their stores. It
//! ends when its input does.

mod digest;
mod kube_rs;
mod own;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, GroupVersionKind};
use kube_fanout::informer::{ListWatch, Packed};
use kube_fanout::resource::Gvr;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::command::Subcommand;
use digest::digest;

/// Runs one informer of pods.
#[derive(Debug, Clone, Parser)]
#[command(name = "follow")]
pub struct Follow {
    /// Kubeconfig of the server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The form in which it keeps pods.
    #[arg(long, value_enum)]
    pub reader: Form,
}

/// The forms in which this project's informer keeps objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// As k8s-openapi's pods.
    Typed,
    /// The same, without managed fields.
    TypedBare,
    /// As bytes that are decoded on access.
    Packed,
    /// As bytes of objects of any kind.
    Raw,
    /// Metadata only.
    Metadata,
}

/// Runs many informers of one resource, each with connections of its own.
#[derive(Debug, Clone, Parser)]
#[command(name = "crowd")]
pub struct Crowd {
    /// Kubeconfig of the server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Whose informers.
    #[arg(long, value_enum)]
    pub library: Library,
    /// Version and plural name, such as `example.com/v1/widgets` or `/v1/pods`.
    #[arg(long)]
    pub resource: String,
    /// Kind of the resource, such as `Widget`.
    #[arg(long)]
    pub kind: String,
    /// Number of informers.
    #[arg(long)]
    pub count: usize,
}

/// Where an informer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// This project.
    Ours,
    /// kube-rs.
    KubeRs,
}

impl Subcommand for Follow {
    fn execute(&self) -> Result<bool> {
        block_on_all_cores(async {
            let (config, pods) = (&self.kubeconfig, Gvr::new("", "v1", "pods"));
            let informer = match self.reader {
                Form::Typed => own::start(config, ListWatch::<Pod>::of_kind()).await?,
                Form::TypedBare => {
                    let bare = ListWatch::<Pod>::of_kind().without_managed_fields();
                    own::start(config, bare).await?
                }
                Form::Packed => own::start(config, ListWatch::<Packed<Pod>>::packed_kind()).await?,
                Form::Raw => own::start(config, ListWatch::raw(&pods)).await?,
                Form::Metadata => own::start(config, ListWatch::metadata(&pods)).await?,
            };
            answer(vec![informer]).await
        })
    }
}

impl Subcommand for Crowd {
    fn execute(&self) -> Result<bool> {
        block_on_all_cores(async {
            let mut parts = self.resource.splitn(3, '/');
            let mut part = || parts.next().context("--resource is GROUP/VERSION/PLURAL");
            let (group, version, plural) = (part()?, part()?, part()?);
            let kind = GroupVersionKind::gvk(group, version, &self.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            let gvr = Gvr::new(group, version, plural);
            let mut informers = Vec::new();
            for _ in 0..self.count {
                informers.push(match self.library {
                    Library::Ours => own::start(&self.kubeconfig, ListWatch::raw(&gvr)).await?,
                    Library::KubeRs => kube_rs::start(&self.kubeconfig, &resource).await?,
                });
            }
            answer(informers).await
        })
    }
}

struct Informer {
    silence: Arc<Silence>,
    /// Resolves when the store has the initial list.
    synced: BoxFuture<'static, Result<()>>,
    /// The lines `namespace/name/resourceVersion` of the store.
    lines: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// How often it asked for all objects.
    lists: Box<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Debug, Default)]
struct Silence {
    /// The last change, and the longest time between two.
    times: Mutex<(Option<Instant>, Duration)>,
}

impl Silence {
    /// Notes an object that changed, was added after the initial list, or was deleted.
    fn change(&self) {
        let now = Instant::now();
        let (changed_at, longest) = &mut *self.times.lock();
        if let Some(before) = changed_at.replace(now) {
            *longest = (*longest).max(now - before);
        }
    }

    /// The longest time between two changes since the last call; the time until the next change does not count.
    fn take_longest(&self) -> Duration {
        std::mem::take(&mut *self.times.lock()).1
    }
}

/// Runs with as many threads as the machine has processors, as programs with informers do.
fn block_on_all_cores(future: impl Future<Output = Result<()>>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(future).map(|()| true)
}

/// Answers lines on standard input until it ends.
async fn answer(mut informers: Vec<Informer>) -> Result<()> {
    let synced_count = Arc::new(AtomicUsize::new(0));
    for informer in &mut informers {
        let never = Box::pin(futures::future::pending());
        let synced = std::mem::replace(&mut informer.synced, never);
        let synced_count = Arc::clone(&synced_count);
        tokio::spawn(async move {
            if synced.await.is_ok() {
                // Relaxed: the reader polls it until it is high enough.
                synced_count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut answer = match line.as_str() {
            "lap" => lap(&informers),
            _ => state(&informers),
        };
        answer["synced"] = synced_count.load(Ordering::Relaxed).into();
        println!("{answer}");
    }
    Ok(())
}

/// How often they have listed since their start, and the longest time for which one of them got nothing since the last lap.
fn lap(informers: &[Informer]) -> Value {
    let silences = informers.iter().map(|one| one.silence.take_longest());
    let longest = silences.max().unwrap_or_default();
    let lists: u64 = informers.iter().map(|one| (one.lists)()).sum();
    json!({"event": "lap", "lists": lists, "silenceMs": longest.as_secs_f64() * 1e3})
}

/// The number of stores by their hash, and their sizes.
fn state(informers: &[Informer]) -> Value {
    let mut hashes = BTreeMap::<String, usize>::new();
    let mut objects = BTreeSet::new();
    for informer in informers {
        let lines = (informer.lines)();
        objects.insert(lines.len());
        *hashes.entry(digest(lines)).or_default() += 1;
    }
    json!({"event": "state", "objects": objects, "hashes": hashes})
}
