//! New connections while a gateway ends: each must be turned away, or get a whole answer, and none may be left waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::results::Results;
use crate::swarm::TOO_MANY;
use crate::target::Target;
use crate::wire::response::{Progress, Response};

/// From one connection to the next.
const EVERY: Duration = Duration::from_millis(20);
/// A connection that has no answer by then is left waiting.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// What a server says that takes no more requests.
const UNAVAILABLE: u16 = 503;

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Refused, or closed before an answer.
    Refused,
    /// Closed in the middle of an answer.
    Half,
    /// This status, and its body.
    Whole(u16),
    /// Nothing for long.
    Silence,
}

/// A client that connects again and again once it is told to.
#[derive(Debug, Clone)]
pub struct ConnectionProbes(Arc<ProbeState>);

#[derive(Debug)]
struct ProbeState {
    target: Target,
    path: String,
    /// The gateway serves nobody any more who was not there before.
    is_late: AtomicBool,
    has_stopped: AtomicBool,
    /// Each with whether it was late.
    answers: Mutex<Vec<(Answer, bool)>>,
}

impl ConnectionProbes {
    /// A client that asks for this path.
    pub fn new(target: Target, path: String) -> Self {
        Self(Arc::new(ProbeState {
            target,
            path,
            is_late: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            answers: Mutex::default(),
        }))
    }

    /// Begins; ends after [`Self::stop`].
    pub fn begin(&self) {
        let shared = self.0.clone();
        // Each knock has its deadline, and the last of them ends it.
        tokio::spawn(async move {
            while !shared.has_stopped.load(Ordering::Relaxed) {
                let is_late = shared.is_late.load(Ordering::Relaxed);
                let answer = knock(&shared.target, &shared.path).await;
                // A port that is free again may be somebody else's.
                if !shared.has_stopped.load(Ordering::Relaxed) {
                    shared.answers().push((answer, is_late));
                }
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    /// From the next one on nobody may be served; returns how many answers there are.
    pub fn be_late(&self) -> usize {
        self.0.is_late.store(true, Ordering::Relaxed);
        self.count()
    }

    /// How many answers there are.
    pub fn count(&self) -> usize {
        self.0.answers().len()
    }

    /// What comes now is nothing of the gateway's.
    pub fn stop(&self) {
        self.0.has_stopped.store(true, Ordering::Relaxed);
    }

    /// What became of them.
    pub fn finish(&self) -> Answers {
        Answers(self.0.answers().clone())
    }
}

impl ProbeState {
    fn answers(&self) -> MutexGuard<'_, Vec<(Answer, bool)>> {
        // Nothing under the lock panics half way.
        self.answers.lock()
    }
}

async fn knock(target: &Target, path: &str) -> Answer {
    let mut has_begun = false;
    let asking = ask(target, path, &mut has_begun);
    match tokio::time::timeout(ANSWER_WAIT, asking).await {
        Ok(Ok(status)) => Answer::Whole(status),
        Ok(Err(_)) if has_begun => Answer::Half,
        Ok(Err(_)) => Answer::Refused,
        Err(_) => Answer::Silence,
    }
}

/// The status of a whole answer.
async fn ask(target: &Target, path: &str, has_begun: &mut bool) -> Result<u16> {
    let mut stream = target.connect("http/1.1").await?;
    let request = target.fetch_text_as(path, "application/json");
    stream.write_all(&request).await?;
    let mut response = Response::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            bail!("closed before the end");
        }
        *has_begun = true;
        if let Progress::Complete(_) = response.feed(&buffer[..len], |_, _| ())? {
            return Ok(response.head().map_or(0, |head| head.status));
        }
    }
}

/// What became of all, each with whether nobody was to be served any more.
#[derive(Debug)]
pub struct Answers(Vec<(Answer, bool)>);

impl Answers {
    /// Counts them, and finds those that ought not to be.
    pub fn report(&self, results: &mut Results) {
        let count = |is: fn(Answer) -> bool| {
            let answers = self.0.iter().filter(|(answer, _)| is(*answer));
            answers.count() as f64
        };
        let refused = count(|answer| answer == Answer::Refused);
        let shed = |answer: Answer| matches!(answer, Answer::Whole(TOO_MANY | UNAVAILABLE));
        results.figure("new connections", self.0.len() as f64);
        results.figure("new connections refused", refused);
        results.figure("new connections answered 429 or 503", count(shed));
        for (answer, is_late) in &self.0 {
            let fault = match (answer, is_late) {
                (Answer::Half, _) => "was closed within its answer",
                (Answer::Silence, _) => "got no answer",
                (Answer::Whole(200), true) => "was served although the others had gone",
                (Answer::Refused, _) | (Answer::Whole(200 | TOO_MANY | UNAVAILABLE), _) => continue,
                (Answer::Whole(_), _) => "got an answer that tells nobody to come later",
            };
            results.fault(format!("a new connection {fault}"));
        }
        if !self.0.iter().any(|(_, is_late)| *is_late) {
            results.invalid("no new connection was tried while the slow were there".to_owned());
        }
    }
}
