//! Which side answers a list or a watch that memory could answer, by the serving rules (decision 61).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::client_name::agent;
use super::client_request::ClientRequest;
use super::negotiation::Negotiation;
use super::read_request::ReadRequest;
use super::resources::{Availability, FillWait, Resources};
use super::service::Service;
use crate::auth::caller::Caller;
use crate::config::{Answerer, ReadSubject};
use crate::fairness::Peer;
use crate::protocol::request::{Verb, WatchPlan, WatchStart};
use crate::resource::{CacheKey, Encoding, ResourceVersion, fraction};
use crate::serving_control::{ServingControl, SideEnd, SubjectUser, WatchSubject};
use crate::view::ServedResource;
use crate::watch::shortened;

/// Upstream sends a bookmark within 75 s to clients that allow bookmarks. A cache that was filled longer ago has the history since.
const HISTORY_MIN: Duration = Duration::from_secs(80);
/// client-go lists again after a watch of less than a second without an event.
const WATCH_MIN: Duration = Duration::from_millis(1_500);
/// Until a cache that is not ready is asked for again.
const FILL_RETRY: Duration = Duration::from_secs(5);

/// Which side answers a read.
pub(super) enum ReadSide {
    Memory,
    /// Upstream, by a rule; for watches with what ends them when the rules change.
    Upstream(Option<SideEnd>),
    /// That depends on the user.
    User,
}

/// A watch that a rule forwards, as long as it does.
struct UpstreamSide {
    control: ServingControl,
    subject: WatchSubject,
    resources: Arc<dyn Resources>,
    key: CacheKey,
    peer: Peer,
    has_bookmarks: bool,
    /// The version that its client had at the start; `None` if it had none.
    known: Option<ResourceVersion>,
    opened_at: Instant,
}

impl Service {
    /// Sets the serving rules. Without them memory answers whatever it can.
    #[must_use]
    pub fn ruled(self, serving: ServingControl) -> Self {
        Self {
            serving: Some(serving),
            ..self
        }
    }

    /// Which side answers a read of this user.
    pub(super) fn side(
        &self,
        read: &ReadRequest,
        request: &ClientRequest,
        user: SubjectUser,
    ) -> ReadSide {
        let Some(control) = &self.serving else {
            return ReadSide::Memory;
        };
        let agent = agent(request.http.headers());
        let subject = ReadSubject {
            user: user.known(),
            agent: shortened(&agent),
            resource: &read.path.gvr,
            address: request.connection.address,
        };
        match control.answerer(&subject) {
            Answerer::Memory(_) => ReadSide::Memory,
            Answerer::User => ReadSide::User,
            Answerer::Upstream(_) if read.verb != Verb::Watch => ReadSide::Upstream(None),
            Answerer::Upstream(_) => {
                let agent = subject.agent.into();
                let address: IpAddr = subject.address;
                let encoding =
                    Negotiation::of(&request.info, self.resources.gates()).first_choice();
                let side = UpstreamSide {
                    control: control.clone(),
                    subject: WatchSubject {
                        user,
                        agent,
                        resource: read.path.gvr.clone(),
                        address,
                    },
                    resources: Arc::clone(&self.resources),
                    key: CacheKey {
                        encoding: encoding.unwrap_or(Encoding::Json),
                        ..CacheKey::json(&read.path.gvr)
                    },
                    peer: request.connection.identity.peer,
                    has_bookmarks: read.options.allow_watch_bookmarks,
                    known: known_version(read),
                    opened_at: Instant::now(),
                };
                ReadSide::Upstream(Some(SideEnd::at(side.end())))
            }
        }
    }

    /// The user of a read before its caller is known.
    pub(super) fn unknown_user(&self) -> SubjectUser {
        match self.guard {
            Some(_) => SubjectUser::Unknown,
            None => SubjectUser::Nobody,
        }
    }
}

/// The version from which a watch starts.
fn known_version(read: &ReadRequest) -> Option<ResourceVersion> {
    match WatchPlan::decide(&read.options)?.start {
        WatchStart::After(version) => Some(version),
        WatchStart::FromNow { .. } | WatchStart::Initial { .. } => None,
    }
}

/// The user of a caller, as rules see it: who has authenticated, whomever it impersonates.
pub(super) fn user_of(caller: &Caller) -> SubjectUser {
    SubjectUser::User(Arc::clone(caller.authenticated()))
}

impl UpstreamSide {
    /// Completes when the watch should end because memory answers its client now, and has the history since its last bookmark. A watch
    /// without bookmarks goes on until its own end.
    async fn end(self) {
        let wave = ServingControl::draw_wave();
        loop {
            // Held before the rules are read, so that no change is missed in between.
            let changed = self.control.wave(wave).revoked();
            let answerer = self.control.would_answer(&self.subject.as_read());
            if !self.has_bookmarks || matches!(answerer, Answerer::Upstream(_)) {
                changed.await;
                continue;
            }
            // Both only wait; cancelling them loses nothing.
            tokio::select! {
                () = changed => {}
                () = self.turn() => break,
            }
        }
        // Its client may come with a version that memory has never had.
        self.control.note_forwarded();
    }

    /// Starts the cache, and completes at the time to leave.
    async fn turn(&self) {
        let known_at = loop {
            let availability = self
                .resources
                .availability(&self.key, FillWait::Long, self.peer);
            if let Availability::Ready(served) = availability.await
                && let Some(filled_at) = self.resources.filled_at(&self.key)
            {
                break match self.is_within(&served) {
                    true => Instant::now(),
                    false => filled_at + HISTORY_MIN,
                };
            }
            sleep(FILL_RETRY).await;
        };
        let now = Instant::now();
        // Those that have waited for the history would all leave at this moment.
        let spread = match known_at > now {
            true => self.control.switch_over(),
            false => self.control.wave_time(),
        };
        let earliest = known_at.max(now).max(self.opened_at + WATCH_MIN);
        sleep_until(earliest + spread.mul_f64(fraction())).await;
    }

    /// Whether memory has had all events since the start of the watch.
    fn is_within(&self, served: &ServedResource) -> bool {
        self.known
            .is_some_and(|version| served.cache.resume_after(version).is_ok())
    }
}
