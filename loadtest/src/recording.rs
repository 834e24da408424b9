//! Records the reference: one list and one watch by another client (hyper) and another parser (serde_json) than the swarm's.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::recorder::now_ns;
use crate::target::Target;
use crate::verify::reference::{Reference, ReferenceEvent, line_hash};
use crate::wire::event::{Event, EventKind, WriteTime};
use crate::wire::list::json_list;

/// How long to wait before watching again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A reference that is being recorded.
#[derive(Debug)]
pub struct Recording {
    /// Version of the list; the recorded events come after it.
    pub start: u64,
    kept: Arc<Mutex<Reference>>,
    delays: Arc<Mutex<Delays>>,
    task: JoinHandle<Result<()>>,
}

/// When writes were sent, nanoseconds since the epoch, and how much later their events arrived here.
#[derive(Debug, Default)]
struct Delays {
    seen: Vec<(u64, u64)>,
}

impl Delays {
    fn add(&mut self, write: WriteTime) {
        if self.seen.len() < Reference::ENTRIES_MAX {
            let delay_ns = now_ns().saturating_sub(write.sent_ns);
            self.seen.push((write.sent_ns, delay_ns));
        }
    }
}

impl Recording {
    /// Lists, then records all following events.
    pub async fn begin(target: Target, path: &str) -> Result<Self> {
        let mut client = Client::new(target);
        let list = client.json(path).await.context("the reference's list")?;
        let (start, initial) = json_list(&list)?;
        let initial = initial.into_iter().collect();
        let kept = Arc::new(Mutex::new(Reference::begin(initial)));
        let delays = Arc::<Mutex<Delays>>::default();
        let recorder = ReferenceRecorder {
            path: path.to_owned(),
            resume: start,
            kept: kept.clone(),
            delays: delays.clone(),
        };
        let task = tokio::spawn(recorder.record(client));
        Ok(Self {
            start,
            kept,
            delays,
            task,
        })
    }

    /// How late the reference itself received the events of writes in this time, microseconds: the API server's share of the latency.
    pub fn latency(&self, written_ns: Range<u64>) -> Histogram<u64> {
        let mut latency = crate::recorder::latencies();
        let delays = self.delays.lock();
        for (written_at, delay_ns) in &delays.seen {
            if written_ns.contains(written_at) {
                latency.saturating_record(delay_ns / 1_000);
            }
        }
        latency
    }

    /// The reference recorded so far.
    pub fn reference(&self) -> MutexGuard<'_, Reference> {
        self.kept.lock()
    }

    /// The newest recorded version, or the list's.
    pub fn last(&self) -> u64 {
        self.reference().last().max(self.start)
    }

    /// Waits until the recording has reached `version`.
    pub async fn reached(&mut self, version: u64, wait: Duration) -> Result<()> {
        let deadline = Instant::now() + wait;
        while self.last() < version {
            if self.task.is_finished() {
                (&mut self.task).await??;
            }
            if Instant::now() > deadline {
                bail!(
                    "the reference stands at {} and has not reached {version} within {wait:?}",
                    self.last()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ReferenceRecorder {
    path: String,
    resume: u64,
    kept: Arc<Mutex<Reference>>,
    delays: Arc<Mutex<Delays>>,
}

impl ReferenceRecorder {
    async fn record(mut self, mut client: Client) -> Result<()> {
        // Ends by being aborted, or by an error that a new watch cannot repair.
        loop {
            let watch = format!(
                "{}?watch=1&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=3600",
                self.path, self.resume
            );
            let mut failure = None;
            let watching = client.watch(&watch, |line| {
                let recorded = self.record_event(line);
                failure = recorded.err();
                ensure!(failure.is_none(), "not recorded");
                Ok(())
            });
            // A broken stream is resumed.
            let _ = watching.await;
            if let Some(error) = failure {
                return Err(error);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    fn record_event(&mut self, line: &[u8]) -> Result<()> {
        let (event, name) = Event::parse_named(line)?;
        match event.kind {
            EventKind::Error => bail!("the reference's watch ended with ERROR {}", event.version),
            EventKind::Bookmark => {}
            EventKind::Added | EventKind::Modified | EventKind::Deleted => {
                let name = name.context("an object without a name")?;
                let mut kept = self.kept.lock();
                let object = kept.object(&name);
                if !kept.push(ReferenceEvent {
                    version: event.version,
                    kind: event.kind,
                    body_hash: line_hash(line),
                    object,
                }) {
                    bail!(
                        "the reference cannot take version {} after {}: out of order or too many",
                        event.version,
                        kept.last()
                    );
                }
                // A deleted object still carries the time of its last change.
                if let (Some(write), EventKind::Added | EventKind::Modified) =
                    (event.write, event.kind)
                {
                    let mut delays = self.delays.lock();
                    delays.add(write);
                }
            }
        }
        self.resume = event.version.max(self.resume);
        Ok(())
    }
}
