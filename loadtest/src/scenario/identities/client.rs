//! A client of the scenario: a reflector with a credential of its own, which notices whom the gateway refuses, and when its right is gone.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::ClientConfig;

use super::credential::PodToken;
use crate::recorder::{Control, Recorder};
use crate::scenario::kubelets::ComparedClient;
use crate::scenario::kubelets::reflector::Reflector;
use crate::swarm::{Member, Next, ResponseEnd, TOO_MANY};

/// A shorter response was a list, or the refusal of a version that the gateway does not know.
const SHORTEST_WATCH: Duration = Duration::from_millis(200);

/// What all clients count. Relaxed: every value stands alone.
#[derive(Debug, Default)]
pub struct ResponseCounts {
    /// Responses with status 200 that have started.
    pub started: AtomicU64,
    pub unauthorized: AtomicU64,
    pub forbidden: AtomicU64,
    pub too_many: AtomicU64,
    /// Status 500 and above.
    pub failed: AtomicU64,
    /// How often the gateway was started.
    pub starts: AtomicUsize,
    /// Clients with a watch at the newest gateway.
    pub served: AtomicUsize,
}

/// What a client presents.
#[derive(Debug, Clone)]
pub enum ClientCredential {
    Certificate(Arc<ClientConfig>),
    Token(Arc<Mutex<PodToken>>),
}

/// A right that some clients lose while they watch.
#[derive(Debug, Default)]
pub struct Revocation {
    /// When it is gone at the API server; until then they are clients as all others.
    pub at: OnceLock<Instant>,
    /// How much later their watches ended for good.
    pub ends: Mutex<Vec<Duration>>,
}

#[derive(Debug)]
pub struct IdentityClient {
    pub reflector: Reflector,
    pub credential: ClientCredential,
    pub counts: Arc<ResponseCounts>,
    pub revocation: Option<Arc<Revocation>>,
    /// The start of the gateway that has its watch.
    served_start: usize,
    started_at: Instant,
    last_end_at: Option<Instant>,
    has_ended: bool,
}

impl IdentityClient {
    pub fn new(
        reflector: Reflector,
        credential: ClientCredential,
        counts: Arc<ResponseCounts>,
        revocation: Option<Arc<Revocation>>,
    ) -> Self {
        Self {
            reflector,
            credential,
            counts,
            revocation,
            served_start: 0,
            started_at: Instant::now(),
            last_end_at: None,
            has_ended: false,
        }
    }

    /// When its right was lost, if it was.
    fn revoked_at(&self) -> Option<Instant> {
        self.revocation.as_ref()?.at.get().copied()
    }

    fn uncount_served(&mut self) {
        let is_counted = self.served_start == self.counts.starts.load(Ordering::Relaxed);
        if is_counted && self.started_at.elapsed() < SHORTEST_WATCH {
            self.served_start = 0;
            self.counts.served.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn count(&self, status: u16) {
        let counter = match status {
            401 => &self.counts.unauthorized,
            403 => &self.counts.forbidden,
            TOO_MANY => &self.counts.too_many,
            500.. => &self.counts.failed,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl ComparedClient for IdentityClient {
    /// A client without its right misses events.
    fn reflector(&self) -> Option<&Reflector> {
        self.revoked_at().is_none().then_some(&self.reflector)
    }
}

impl Member for IdentityClient {
    fn next(&mut self, control: &Control) -> Next {
        match self.has_ended {
            true => Next::Done,
            false => self.reflector.next(control),
        }
    }

    fn token(&mut self) -> Option<String> {
        match &self.credential {
            ClientCredential::Certificate(_) => None,
            ClientCredential::Token(token) => Some(token.lock().current(Instant::now())),
        }
    }

    fn tls(&self) -> Option<Arc<ClientConfig>> {
        match &self.credential {
            ClientCredential::Certificate(tls) => Some(tls.clone()),
            ClientCredential::Token(_) => None,
        }
    }

    fn response_started(&mut self) {
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        self.started_at = Instant::now();
        let start = self.counts.starts.load(Ordering::Relaxed);
        if self.served_start < start {
            self.served_start = start;
            self.counts.served.fetch_add(1, Ordering::Relaxed);
        }
        self.reflector.response_started();
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        self.reflector.body(status, data, recorder);
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        match (how, &self.revocation) {
            (ResponseEnd::Complete(401 | 403), Some(revocation))
                if revocation.at.get().is_some() =>
            {
                let lost_at = self.revoked_at().zip(self.last_end_at);
                let after = lost_at.map(|(at, end)| end.saturating_duration_since(at));
                revocation.ends.lock().extend(after);
                self.has_ended = true;
                return;
            }
            (ResponseEnd::Complete(200) | ResponseEnd::Broken(_) | ResponseEnd::Left, _) => {
                self.last_end_at = Some(Instant::now());
                self.uncount_served();
            }
            (ResponseEnd::Complete(status), _) => self.count(status),
        }
        self.reflector.response_ended(how, recorder);
    }

    fn progress(&self, control: &Control) -> usize {
        match self.revoked_at() {
            Some(_) => 0,
            None => self.reflector.progress(control),
        }
    }

    fn behind_by(&self) -> Option<u64> {
        match self.revoked_at() {
            Some(_) => None,
            None => self.reflector.behind_by(),
        }
    }
}
