//! The witness of an attack: a client like any other, who writes, watches what it wrote, lists, and makes new connections, each at an even
//! rate, whatever becomes of the one before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use tokio::task::JoinSet;

use crate::client::{Client, list_version};
use crate::recorder::now_ns;
use crate::scenario::watch_run::quiet::{BOUND, Silence};
use crate::target::Target;
use crate::wire::event::{Event, Kind, first_version};
use crate::wire::lines::Lines;
use crate::writer::shape::Shape;

/// From one to the next of its kind.
const EVERY: Duration = Duration::from_millis(50);
/// An answer that takes longer is none.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Before a watch that has ended is begun anew.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How often it is looked whether the last event has come.
const LOOK: Duration = Duration::from_millis(10);
/// Length of what it writes, bytes.
const OBJECT_LEN: usize = 1_024;
/// Name of its object.
const NAME: &str = "witness";

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// An event, from its write being sent to its arrival.
    Event,
    /// A consistent list of at most 100 objects.
    List,
    /// A write.
    Write,
    /// A connection, and one short answer on it.
    Connection,
}

impl Deed {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Event, Self::List, Self::Write, Self::Connection];

    /// In the figures' names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Event => "events",
            Self::List => "lists",
            Self::Write => "writes",
            Self::Connection => "new connections",
        }
    }
}

/// One thing done.
#[derive(Debug, Clone)]
pub struct Done {
    /// What.
    pub deed: Deed,
    /// When it was due, nanoseconds since the epoch.
    pub due_ns: u64,
    /// How long it took from then.
    pub took: Duration,
    /// Why it failed.
    pub failure: Option<String>,
}

#[derive(Debug, Default)]
struct Notes {
    done: Vec<Done>,
    /// Versions written, and whether their event has come.
    versions: Vec<(u64, bool)>,
}

/// A witness at work; its tasks end with it.
#[derive(Debug)]
pub struct Witness {
    notes: Arc<Mutex<Notes>>,
    writing: JoinSet<()>,
    _others: JoinSet<()>,
}

/// What the tasks need.
#[derive(Debug, Clone)]
struct Scene {
    target: Target,
    path: String,
    notes: Arc<Mutex<Notes>>,
}

impl Witness {
    /// Creates its object and begins.
    ///
    /// # Errors
    /// If the server does not answer yet.
    pub async fn begin(target: &Target, path: &str) -> Result<Self> {
        let notes = Arc::<Mutex<Notes>>::default();
        let scene = Scene {
            target: target.clone(),
            path: path.to_owned(),
            notes: notes.clone(),
        };
        let mut client = Client::new(target.clone());
        let (status, _) = client.call(Method::POST, path, object()).await?;
        ensure!(
            status.is_success() || status == StatusCode::CONFLICT,
            "POST {path}: {status}"
        );
        let start = newest(target, path).await?;
        let (mut writing, mut others) = (JoinSet::new(), JoinSet::new());
        others.spawn(watch(scene.clone(), start));
        others.spawn(repeat(scene.clone(), Deed::List));
        others.spawn(repeat(scene.clone(), Deed::Connection));
        writing.spawn(repeat(scene, Deed::Write));
        Ok(Self {
            notes,
            writing,
            _others: others,
        })
    }

    /// Writes no more and waits until the last event has come, or none has come for the time of [`BOUND`]. What it did, and how many events
    /// are missing.
    pub async fn finish(mut self) -> (Vec<Done>, usize) {
        self.writing.shutdown().await;
        let missing = |notes: &Notes| notes.versions.iter().filter(|(_, came)| !came).count();
        // Every look is one by the runtime that reads: that it finds nothing is the only thing that can be missed.
        let came = || {
            held(&self.notes)
                .versions
                .iter()
                .filter(|one| one.1)
                .count() as u64
        };
        let (mut silence, mut looks) = (Silence::begin(came(), 0, now()), 0);
        while missing(&held(&self.notes)) > 0 && silence.look(came(), looks, now()) < BOUND {
            tokio::time::sleep(LOOK).await;
            looks += 1;
        }
        let notes = std::mem::take(&mut *held(&self.notes));
        let missing = missing(&notes);
        (notes.done, missing)
    }
}

fn now() -> std::time::Instant {
    std::time::Instant::now()
}

fn held(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn object() -> Vec<u8> {
    Shape::ConfigMap.object(NAME, 0, OBJECT_LEN, tokio::time::Instant::now())
}

/// Does one thing at an even rate. What is late is counted from when it was due.
async fn repeat(scene: Scene, deed: Deed) {
    let mut client = Client::new(scene.target.clone());
    let mut tick = tokio::time::interval(EVERY);
    loop {
        let due = tick.tick().await;
        let late = due.elapsed();
        let due_ns = now_ns().saturating_sub(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        let doing = once(&scene, deed, &mut client);
        let outcome = match tokio::time::timeout(ANSWER_WAIT, doing).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("no answer within {ANSWER_WAIT:?}")),
        };
        if outcome.is_err() {
            client = Client::new(scene.target.clone());
        }
        held(&scene.notes).done.push(Done {
            deed,
            due_ns,
            took: due.elapsed(),
            failure: outcome.err().map(|error| format!("{error:#}")),
        });
    }
}

async fn once(scene: &Scene, deed: Deed, client: &mut Client) -> Result<()> {
    let path = &scene.path;
    let (status, body) = match deed {
        Deed::Write => {
            let path = format!("{path}/{NAME}");
            client.call(Method::PUT, &path, object()).await?
        }
        Deed::List => {
            let path = format!("{path}?limit=100");
            client.call(Method::GET, &path, Vec::new()).await?
        }
        Deed::Event | Deed::Connection => {
            let path = format!("{path}?limit=1&resourceVersion=0");
            let mut fresh = Client::new(scene.target.clone());
            fresh.call(Method::GET, &path, Vec::new()).await?
        }
    };
    ensure!(status.is_success(), "{status}");
    if let (Deed::Write, Some(version)) = (deed, first_version(&body)) {
        let mut notes = held(&scene.notes);
        // Its event may have come before its answer.
        if !notes.versions.iter().any(|(one, _)| *one == version) {
            notes.versions.push((version, false));
        }
    }
    Ok(())
}

/// The version of a list from memory, after which the server can tell everything.
async fn newest(target: &Target, path: &str) -> Result<u64> {
    let path = format!("{path}?limit=1&resourceVersion=0");
    list_version(&Client::new(target.clone()).json(&path).await?)
}

/// Watches its own object. A stream that ends is begun anew where it ended, which is a failure of its own if it is refused.
async fn watch(scene: Scene, mut version: u64) {
    loop {
        let due_ns = now_ns();
        if let Err(error) = stream(&scene, &mut version).await {
            held(&scene.notes).done.push(Done {
                deed: Deed::Event,
                due_ns,
                took: Duration::ZERO,
                failure: Some(format!("{error:#}")),
            });
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

async fn stream(scene: &Scene, version: &mut u64) -> Result<()> {
    if *version == 0 {
        *version = newest(&scene.target, &scene.path).await?;
        // What lies before is not told any more; that it was not is counted once, by the end of the stream before.
        let mut notes = held(&scene.notes);
        let older = notes.versions.iter_mut().filter(|(one, _)| one <= version);
        older.for_each(|(_, came)| *came = true);
    }
    let path = format!(
        "{}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3D{NAME}&timeoutSeconds=3600",
        scene.path
    );
    let mut client = Client::new(scene.target.clone());
    let response = client.open(Method::GET, &path, Vec::new()).await?;
    ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let (mut body, mut lines) = (response.into_body(), Lines::default());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        let mut outcome = Ok(());
        lines.feed(&data, |line| {
            if outcome.is_ok() {
                outcome = take(scene, line, version);
            }
        })?;
        outcome?;
    }
    Ok(())
}

fn take(scene: &Scene, line: &[u8], version: &mut u64) -> Result<()> {
    let event = Event::parse(line)?;
    if event.kind == Kind::Error {
        *version = 0;
        bail!("ERROR {}", event.version);
    }
    *version = event.version;
    let mut notes = held(&scene.notes);
    match notes
        .versions
        .iter_mut()
        .rev()
        .find(|(one, _)| *one == event.version)
    {
        Some((_, came)) => *came = true,
        None => notes.versions.push((event.version, true)),
    }
    if let Some(write) = event.write {
        let at = write.sent_ns;
        notes.done.push(Done {
            deed: Deed::Event,
            due_ns: at,
            took: Duration::from_nanos(now_ns().saturating_sub(at)),
            failure: None,
        });
    }
    Ok(())
}
