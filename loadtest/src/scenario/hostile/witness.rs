//! The witness of an attack: a client that writes, watches its own writes, lists, and opens new connections, each at an even rate that does
//! not depend on earlier responses.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use hyper::Method;
use kube_fanout::quiet::{BOUND, Silence};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, list_version};
use crate::recorder::now_ns;
use crate::target::Target;
use crate::wire::event::{Event, EventKind, WriteTime, first_version};
use crate::writer::shape::Shape;

/// Time between two operations of a kind.
const EVERY: Duration = Duration::from_millis(50);
/// Longest time for a response.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Pause before a watch is resumed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How often to check for the last event.
const LOOK: Duration = Duration::from_millis(10);
/// Length of its object, bytes.
const OBJECT_LEN: usize = 1_024;
const NAME: &str = "witness";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An event, from when its write was due to its arrival.
    Event,
    /// A consistent list of at most 100 objects, which needs no list permit.
    List,
    /// A list of all objects, like that of a starting informer.
    FullList,
    Write,
    /// A connection, and one short response on it.
    Connection,
}

impl Operation {
    pub const ALL: [Self; 5] = [
        Self::Event,
        Self::List,
        Self::FullList,
        Self::Write,
        Self::Connection,
    ];
    /// Operations at an even rate; events follow from the writes.
    const TIMED: [Self; 4] = [Self::List, Self::FullList, Self::Write, Self::Connection];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Event => "events",
            Self::List => "lists",
            Self::FullList => "full lists",
            Self::Write => "writes",
            Self::Connection => "new connections",
        }
    }
}

/// One operation and its outcome.
#[derive(Debug, Clone)]
pub struct OperationRecord {
    pub operation: Operation,
    /// When it was due, nanoseconds since the epoch.
    pub due_ns: u64,
    /// Time from then until its end, or until now; none for failures without a length, such as a stream that ended.
    pub duration: Option<Duration>,
    pub failure: Option<String>,
}

impl OperationRecord {
    /// How long a caller has to wait for success. A failed operation does not succeed sooner because it failed at once.
    pub fn wait(&self) -> Option<Duration> {
        let duration = self.duration?;
        Some(match self.failure {
            Some(_) => duration.max(ANSWER_WAIT),
            None => duration,
        })
    }
}

/// A write of the witness.
#[derive(Debug)]
struct WitnessWrite {
    version: u64,
    due_ns: u64,
    has_come: bool,
}

#[derive(Debug, Default)]
struct WitnessLog {
    done: Vec<OperationRecord>,
    versions: Vec<WitnessWrite>,
    /// Operations that are due later are not started, nanoseconds since the epoch.
    end_ns: Option<u64>,
    /// For each timed operation, when the current or the next one is due.
    due_ns: [u64; Operation::TIMED.len()],
}

impl WitnessLog {
    fn fail(&mut self, operation: Operation, due_ns: u64, duration: Option<Duration>, why: String) {
        self.done.push(OperationRecord {
            operation,
            due_ns,
            duration,
            failure: Some(why),
        });
    }

    /// The record of a version, whose event or response has arrived.
    fn version(&mut self, version: u64, due_ns: u64) -> &mut WitnessWrite {
        let known = self.versions.iter().rposition(|one| one.version == version);
        let at = known.unwrap_or_else(|| {
            self.versions.push(WitnessWrite {
                version,
                due_ns,
                has_come: false,
            });
            self.versions.len() - 1
        });
        &mut self.versions[at]
    }

    fn missing(&self) -> usize {
        self.versions.iter().filter(|one| !one.has_come).count()
    }

    /// Adds operations that were due and are not done. Otherwise a server that hangs would be judged by its earlier responses only.
    fn close(&mut self, now_ns: u64) {
        let since = |due_ns: u64| Some(Duration::from_nanos(now_ns.saturating_sub(due_ns)));
        let every_ns = EVERY.as_nanos() as usize;
        for (operation, first_ns) in Operation::TIMED.into_iter().zip(self.due_ns) {
            for due_ns in (first_ns..now_ns).step_by(every_ns) {
                self.fail(
                    operation,
                    due_ns,
                    since(due_ns),
                    "not done at the end".to_owned(),
                );
            }
        }
        let missing = self.versions.iter().filter(|one| !one.has_come);
        let due: Vec<_> = missing.map(|one| one.due_ns).collect();
        for due_ns in due {
            let why = "not there at the end".to_owned();
            self.fail(Operation::Event, due_ns, since(due_ns), why);
        }
    }
}

/// A running witness; its tasks end with it.
#[derive(Debug)]
pub struct Witness {
    /// Number of objects in one of its full lists.
    pub listed: usize,
    notes: Arc<Mutex<WitnessLog>>,
    writing: JoinSet<()>,
    others: JoinSet<()>,
    watching: JoinSet<()>,
}

/// Everything that a witness has recorded.
#[derive(Debug)]
pub struct WitnessReport {
    pub done: Vec<OperationRecord>,
    /// Number of events that never arrived.
    pub missing: usize,
}

#[derive(Debug, Clone)]
struct WitnessContext {
    target: Target,
    /// The collection of its object.
    path: String,
    /// The same collection in all namespaces.
    everywhere: String,
    notes: Arc<Mutex<WitnessLog>>,
}

impl Witness {
    /// Creates its object and starts the tasks.
    pub async fn begin(target: &Target, path: &str) -> Result<Self> {
        let notes = Arc::<Mutex<WitnessLog>>::default();
        let scene = WitnessContext {
            target: target.clone(),
            path: path.to_owned(),
            everywhere: everywhere(path),
            notes: notes.clone(),
        };
        let mut client = Client::new(target.clone());
        client.create(path, object(Instant::now())).await?;
        let start = newest(target, path).await?;
        let full = format!("{}?resourceVersion=0", scene.everywhere);
        let listed = client.json(&full).await?["items"]
            .as_array()
            .map_or(0, Vec::len);
        let [mut writing, mut others, mut watching] = [(); 3].map(|()| JoinSet::new());
        watching.spawn(watch(scene.clone(), start));
        for (number, operation) in Operation::TIMED.into_iter().enumerate() {
            let tasks = match operation {
                Operation::Write => &mut writing,
                _ => &mut others,
            };
            tasks.spawn(repeat(scene.clone(), operation, number));
        }
        Ok(Self {
            listed,
            notes,
            writing,
            others,
            watching,
        })
    }

    /// The operations that have ended so far.
    #[cfg(test)]
    pub fn records(&self) -> Vec<OperationRecord> {
        self.notes.lock().done.clone()
    }

    /// Completes the operations that are due, and waits until the last event has arrived, or until none has arrived for [`BOUND`].
    pub async fn finish(mut self) -> WitnessReport {
        let end_ns = now_ns();
        self.notes.lock().end_ns = Some(end_ns);
        // What was due a moment ago is not late yet, and a write without a response may have an event that is not missed.
        let done = async {
            while self.others.join_next().await.is_some() {}
            while self.writing.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(BOUND, done).await;
        self.others.shutdown().await;
        self.writing.shutdown().await;
        // This runtime reads the events too, so nothing can be pending here for long.
        let came = || {
            let notes = self.notes.lock();
            (notes.versions.len() - notes.missing()) as u64
        };
        let started = Instant::now();
        let mut silence = Silence::begin(came(), started.elapsed());
        while self.notes.lock().missing() > 0 && silence.look(came(), started.elapsed()) < BOUND {
            tokio::time::sleep(LOOK).await;
        }
        self.watching.shutdown().await;
        let mut notes = std::mem::take(&mut *self.notes.lock());
        notes.close(end_ns);
        WitnessReport {
            missing: notes.missing(),
            done: notes.done,
        }
    }
}

fn object(due: Instant) -> Vec<u8> {
    Shape::ConfigMap.object(NAME, 0, OBJECT_LEN, due)
}

/// The path of a collection in all namespaces.
fn everywhere(path: &str) -> String {
    let Some((before, rest)) = path.split_once("/namespaces/") else {
        return path.to_owned();
    };
    let resource = rest.split_once('/').map_or("", |(_, resource)| resource);
    format!("{before}/{resource}")
}

/// Repeats one operation at an even rate. A late operation is counted from when it was due.
async fn repeat(scene: WitnessContext, operation: Operation, number: usize) {
    let mut client = Client::new(scene.target.clone());
    let mut due = Instant::now();
    let mut due_ns = now_ns();
    loop {
        scene.notes.lock().due_ns[number] = due_ns;
        tokio::time::sleep_until(due).await;
        if scene
            .notes
            .lock()
            .end_ns
            .is_some_and(|end_ns| end_ns <= due_ns)
        {
            return;
        }
        let doing = once(&scene, (operation, due, due_ns), &mut client);
        let outcome = match tokio::time::timeout(ANSWER_WAIT, doing).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("no answer within {ANSWER_WAIT:?}")),
        };
        if outcome.is_err() {
            client = Client::new(scene.target.clone());
        }
        scene.notes.lock().done.push(OperationRecord {
            operation,
            due_ns,
            duration: Some(due.elapsed()),
            failure: outcome.err().map(|error| format!("{error:#}")),
        });
        due += EVERY;
        due_ns += EVERY.as_nanos() as u64;
    }
}

async fn once(
    scene: &WitnessContext,
    (operation, due, due_ns): (Operation, Instant, u64),
    client: &mut Client,
) -> Result<()> {
    let WitnessContext {
        path, everywhere, ..
    } = scene;
    let get = |query: &str| format!("{everywhere}?{query}");
    let (status, body) = match operation {
        Operation::Write => {
            let path = format!("{path}/{NAME}");
            client.call(Method::PUT, &path, object(due)).await?
        }
        Operation::List => {
            let path = get("limit=100");
            client.call(Method::GET, &path, Vec::new()).await?
        }
        Operation::FullList => {
            let path = get("resourceVersion=0");
            client.call(Method::GET, &path, Vec::new()).await?
        }
        Operation::Event | Operation::Connection => {
            // One object: at an old version a limit would not make the list shorter.
            let path = format!("{path}?fieldSelector=metadata.name%3D{NAME}&resourceVersion=0");
            let mut fresh = Client::new(scene.target.clone());
            fresh.call(Method::GET, &path, Vec::new()).await?
        }
    };
    ensure!(status.is_success(), "{status}");
    if let (Operation::Write, Some(version)) = (operation, first_version(&body)) {
        scene.notes.lock().version(version, due_ns);
    }
    Ok(())
}

/// The version of a list from memory; the server can deliver all later events.
async fn newest(target: &Target, path: &str) -> Result<u64> {
    let path = format!("{path}?limit=1&resourceVersion=0");
    list_version(&Client::new(target.clone()).json(&path).await?)
}

/// Watches the witness's object, and resumes ended streams. That a stream ended or was refused is a failure of its own.
async fn watch(scene: WitnessContext, mut version: u64) {
    loop {
        let why = match stream(&scene, &mut version).await {
            Ok(()) => "the stream was ended".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        scene
            .notes
            .lock()
            .fail(Operation::Event, now_ns(), None, why);
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// One stream, until the server ends it.
async fn stream(scene: &WitnessContext, version: &mut u64) -> Result<()> {
    if *version == 0 {
        *version = newest(&scene.target, &scene.path).await?;
        // Events up to this version will not be delivered.
        let now_ns = now_ns();
        let mut notes = scene.notes.lock();
        let older = notes.versions.iter_mut();
        let skipped: Vec<_> = older
            .filter(|one| one.version <= *version && !one.has_come)
            .map(|one| {
                one.has_come = true;
                one.due_ns
            })
            .collect();
        for due_ns in skipped {
            let duration = Duration::from_nanos(now_ns.saturating_sub(due_ns));
            notes.fail(
                Operation::Event,
                due_ns,
                Some(duration),
                "skipped after 410".to_owned(),
            );
        }
    }
    let path = format!(
        "{}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3D{NAME}&timeoutSeconds=3600",
        scene.path
    );
    let mut client = Client::new(scene.target.clone());
    client
        .watch(&path, |line| record_event(scene, line, version))
        .await
}

fn record_event(scene: &WitnessContext, line: &[u8], version: &mut u64) -> Result<()> {
    let event = Event::parse(line)?;
    if event.kind == EventKind::Error {
        *version = 0;
        bail!("ERROR {}", event.version);
    }
    *version = event.version;
    let now_ns = now_ns();
    let due_ns = event.write.map_or(now_ns, WriteTime::due_ns);
    let mut notes = scene.notes.lock();
    notes.version(event.version, due_ns).has_come = true;
    if event.write.is_some() {
        notes.done.push(OperationRecord {
            operation: Operation::Event,
            due_ns,
            duration: Some(Duration::from_nanos(now_ns.saturating_sub(due_ns))),
            failure: None,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Operations that were not done, or that failed at once, count as late.

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn operations_that_are_due_and_not_done_count_as_late() {
        let mut notes = WitnessLog {
            due_ns: [900 * MS, 1_050 * MS, 2_000 * MS, 2_000 * MS],
            ..WitnessLog::default()
        };
        notes.version(7, 100 * MS);
        notes.version(8, 200 * MS).has_come = true;
        // The response to a write whose event has arrived already.
        notes.version(8, 200 * MS);
        notes.close(1_060 * MS);
        let of = |operation: Operation| {
            let all = notes.done.iter().filter(|one| one.operation == operation);
            all.map(|one| one.duration.unwrap().as_millis())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Operation::List), [160, 110, 60, 10]);
        assert_eq!(of(Operation::FullList), [10]);
        assert_eq!(of(Operation::Write), [0_u128; 0]);
        assert_eq!(of(Operation::Event), [960]);
        assert_eq!(notes.missing(), 1);
        assert!(notes.done.iter().all(|one| one.wait() >= Some(ANSWER_WAIT)));
    }
}
