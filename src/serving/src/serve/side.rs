//! Which side answers a list or a watch that memory could answer, by the serving rules (decision 61).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::client_name::agent;
use super::client_request::ClientRequest;
use super::negotiation::Negotiation;
use super::read_request::ReadRequest;
use super::resources::{Availability, FillWait, Resources};
use super::service::{RuledReads, Service};
use crate::auth::caller::Caller;
use crate::config::{Answerer, ReadSubject};
use crate::fairness::Peer;
use crate::protocol::request::{Verb, WatchPlan, WatchStart};
use crate::resource::{CacheKey, Encoding, ResourceVersion, fraction};
use crate::serving_control::{OwnedSubject, ServingControl, SideEnd, SubjectUser};
use crate::shadow::Shadow;
use crate::view::ServedResource;
use crate::watch::shortened;

/// Upstream sends a bookmark within 75 s to clients that allow bookmarks. A cache that was filled longer ago has the history since.
const HISTORY_MIN: Duration = Duration::from_secs(80);
/// client-go lists again after a watch of less than a second without an event.
const WATCH_MIN: Duration = Duration::from_millis(1_500);
/// Until a cache that is not ready is asked for again.
const FILL_RETRY: Duration = Duration::from_secs(5);
/// Until it is asked again whether memory may keep the resource.
const KEEP_RETRY: Duration = Duration::from_secs(60);

/// Which side answers a read.
pub(super) enum ReadSide {
    Memory,
    /// Upstream, by a rule.
    Upstream(RuledForward),
    /// That depends on the user.
    User,
}

/// How a rule forwards a read.
#[derive(Default)]
pub(super) struct RuledForward {
    /// What ends a watch when the rules change.
    pub(super) end: Option<SideEnd>,
    /// What the rules see of a read whose answer is compared with what memory would have answered.
    pub(super) shadowed: Option<OwnedSubject>,
}

/// A watch that a rule forwards, as long as it does.
struct UpstreamSide {
    control: ServingControl,
    subject: OwnedSubject,
    resources: Arc<dyn Resources>,
    key: CacheKey,
    peer: Peer,
    has_bookmarks: bool,
    /// The version that its client had at the start; `None` if it had none.
    known: Option<ResourceVersion>,
    opened_at: Instant,
}

impl Service {
    /// Sets the serving rules, and what compares where they say so. Without them memory answers whatever it can.
    #[must_use]
    pub fn ruled(self, control: ServingControl, shadow: Shadow) -> Self {
        Self {
            serving: Some(Arc::new(RuledReads { control, shadow })),
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
        let Some(RuledReads { control, .. }) = self.serving.as_deref() else {
            return ReadSide::Memory;
        };
        let agent = agent(request.http.headers());
        let subject = ReadSubject {
            user: user.known(),
            agent: shortened(&agent),
            resource: &read.path.gvr,
            address: request.connection.address,
        };
        let is_shadowed = match control.answerer(&subject) {
            Answerer::Memory(_) => return ReadSide::Memory,
            Answerer::User => return ReadSide::User,
            Answerer::Upstream(_) => false,
            Answerer::Shadow(_) => true,
        };
        let subject = OwnedSubject {
            agent: subject.agent.into(),
            resource: read.path.gvr.clone(),
            address: subject.address,
            user,
        };
        let shadowed = is_shadowed.then(|| subject.clone());
        if read.verb != Verb::Watch {
            return ReadSide::Upstream(RuledForward {
                end: None,
                shadowed,
            });
        }
        let encoding = Negotiation::of(&request.info, self.resources.gates()).first_choice();
        let side = UpstreamSide {
            control: control.clone(),
            subject,
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
        ReadSide::Upstream(RuledForward {
            end: Some(SideEnd::at(side.end())),
            shadowed,
        })
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

impl Drop for UpstreamSide {
    fn drop(&mut self) {
        // Its client may come with a version that memory has never had.
        self.control.note_forwarded();
    }
}

impl UpstreamSide {
    /// Completes when the watch should end because memory answers its client now, and has the history since its last bookmark. A watch
    /// without bookmarks goes on until its own end, and so does one whose side depends on a user who is not known.
    async fn end(self) {
        let wave = ServingControl::draw_wave();
        loop {
            // Held before the rules are read, so that no change is missed in between.
            let changed = self.control.wave(wave).revoked();
            let answerer = self.control.would_answer(&self.subject.as_read());
            if !self.has_bookmarks || !matches!(answerer, Answerer::Memory(_)) {
                changed.await;
                continue;
            }
            // Both only wait; cancelling them loses nothing.
            tokio::select! {
                () = changed => {}
                () = self.turn() => return,
            }
        }
    }

    /// Starts the cache, and completes at the time to leave.
    async fn turn(&self) {
        let mut key = self.key.clone();
        loop {
            if !self.resources.may_serve(&key.gvr) {
                sleep(KEEP_RETRY).await;
                continue;
            }
            let availability = self
                .resources
                .availability(&key, FillWait::Long, self.peer)
                .await;
            match (availability, self.resources.filled_at(&key)) {
                (Availability::Ready(served), Some(filled_at)) => {
                    sleep_until(self.time_to_leave(&served, filled_at)).await;
                    // It may have been filled again while this waited.
                    if self.resources.filled_at(&key) == Some(filled_at) {
                        return;
                    }
                }
                // Custom resources have no protobuf, but the gateway can write their metadata.
                (Availability::OtherEncoding, _) if key.encoding != Encoding::Json => {
                    key.encoding = Encoding::Json;
                }
                _ => sleep(FILL_RETRY).await,
            }
        }
    }

    fn time_to_leave(&self, served: &ServedResource, filled_at: Instant) -> Instant {
        let now = Instant::now();
        // Memory has all events since the start of the watch, or the client has had a bookmark since both began.
        let is_within = self
            .known
            .is_some_and(|version| served.cache.resume_after(version).is_ok());
        let known_at = match is_within {
            true => now,
            false => filled_at.max(self.opened_at) + HISTORY_MIN,
        };
        // Those that have waited for the history would all leave at this moment.
        let spread = match known_at > now {
            true => self.control.switch_over(),
            false => self.control.wave_time(),
        };
        let earliest = known_at.max(now).max(self.opened_at + WATCH_MIN);
        earliest + spread.mul_f64(fraction())
    }
}
