//! A seeded model of a cluster whose rights change all the time: no caller reads anything for longer than docs/SECURITY.md says, and no
//! caller gets another one's answer. `AUTH_STEPS`, when it is compiled, sets the number of steps.

mod upstream;

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;

use super::*;
use crate::auth::lease::LeaseHold;
use crate::auth::policy::FollowedPolicy;
use crate::auth::question::AccessQuestion;
use upstream::{Cause, DENIED, OTHER, Upstream};

/// Tokens with the names of their users; those of the account are bound to pods.
const TOKENS: [(&str, &str); 6] = [
    ("sa-0", "system:serviceaccount:a:b"),
    (DENIED, "system:serviceaccount:a:b"),
    ("sa-2", "system:serviceaccount:a:b"),
    ("jane-0", "jane"),
    ("joe-0", "joe"),
    (OTHER, "joe"),
];
const GRACE: Duration = Duration::from_secs(300);
/// From the loss of a right to the end of streams: the bounds of docs/SECURITY.md.
const BY_ROLES: Duration = Duration::from_secs(5);
const BY_DELETION: Duration = Duration::from_secs(15);
const UNNOTICED: Duration = Duration::from_secs(3_600);
/// The same for new requests: a token is remembered for two minutes, and the API server remembers it for ten seconds.
const NEW_TOKEN: Duration = Duration::from_secs(131);
/// An answer is remembered for five minutes, after a webhook was noticed or a silent watch was given up.
const NEW_ACCESS: Duration = Duration::from_secs(300 + 180 + 5);
/// A watch of roles that is silent for longer explains nothing.
const SILENT_MAX: Duration = Duration::from_secs(180);
/// A webhook is noticed by the next probe.
const PROBE: Duration = Duration::from_secs(60);

/// How fast upstream answers, and tells of changes of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Prompt,
    /// Reviews take up to two seconds, and changes of roles arrive up to three seconds late.
    Slow,
}

impl Pace {
    /// What it adds to each bound: the lag of roles, and reviews that follow on each other, of the request or the check and of a request
    /// before it.
    const fn slack(self) -> Duration {
        match self {
            Self::Prompt => Duration::ZERO,
            Self::Slow => Duration::from_secs(13),
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn token(&mut self) -> &'static str {
        TOKENS[usize::try_from(self.below(TOKENS.len() as u64)).unwrap()].0
    }
}

/// Why a token may not read, and since when.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Instant,
    /// The bound if everything was followed all the time.
    bound: Duration,
    cause: Cause,
}

struct Model {
    guard: Guard,
    store: Arc<PolicyStore>,
    policy: Arc<FollowedPolicy>,
    upstream: Upstream,
    dice: Dice,
    streams: Vec<(&'static str, Lease, LeaseHold)>,
    losses: HashMap<(&'static str, Cause), Loss>,
    /// When the watches of roles fell silent; what changed since is not known here.
    silent_since: Option<Instant>,
    webhook_since: Option<Instant>,
    /// When the watch brings the changes of roles that it has not brought yet.
    delivered_at: Option<Instant>,
    pace: Pace,
    /// The last moment at which something was not followed, or reviews had no answers.
    troubled_at: Option<Instant>,
    events: usize,
    started_at: Instant,
    seed: u64,
}

fn user(secret: &str, name: &str) -> User {
    let mut extra = std::collections::BTreeMap::new();
    if secret.starts_with("sa-") {
        for key in ["pod-uid", "credential-id"] {
            let key = format!("authentication.kubernetes.io/{key}");
            extra.insert(key, vec![secret.to_owned()]);
        }
    }
    if secret == OTHER {
        extra.insert("other".to_owned(), vec!["x".to_owned()]);
        let key = "authentication.kubernetes.io/credential-id";
        extra.insert(key.to_owned(), vec![secret.to_owned()]);
    }
    User {
        name: name.to_owned(),
        extra,
        ..User::default()
    }
    .authenticated()
}

fn binding(name: &str) -> ClusterRoleBinding {
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    serde_json::from_value(binding).unwrap()
}

fn guard(mode: AuthorizerMode, store: &Arc<PolicyStore>, upstream: &Upstream) -> Guard {
    let metrics = Metrics::new().unwrap();
    let clock: crate::auth::token_cache::WallClock = Arc::new(SystemTime::now);
    let cache = TokenCache::new(
        Arc::new(upstream.clone()),
        Arc::clone(&clock),
        metrics.authentication(),
    );
    let settings = AuthenticatorSettings {
        anonymous: false,
        client_ca: None,
        front_proxy: None,
    };
    let authenticator =
        Authenticator::new(settings, cache.unwrap(), clock, metrics.authentication());
    let remote: Arc<dyn Authorizer> = Arc::new(upstream.clone());
    let authorizer = match mode {
        AuthorizerMode::Rbac => Arc::new(crate::auth::role_authorizer::RoleAuthorizer::new(
            Arc::clone(store),
            remote,
        )) as _,
        AuthorizerMode::SelfCheck | AuthorizerMode::Review => remote,
    };
    let settings = GuardSettings {
        mode,
        allow_ttl: Duration::from_secs(300),
        deny_ttl: Duration::from_secs(30),
        reauthorize_interval: Duration::from_secs(600),
        review_budget: ReviewBudget::Auto,
        reauthorize_grace: GRACE,
    };
    Guard::new(
        settings,
        Arc::new(authenticator),
        Deciders {
            authorizer,
            policy: Arc::clone(store),
        },
        CredentialHasher::new(&[7; 32]),
        metrics.authorization(),
    )
}

impl Model {
    fn new(mode: AuthorizerMode, pace: Pace, seed: u64) -> Self {
        let upstream = Upstream::default();
        let (store, policy) = (
            Arc::new(PolicyStore::default()),
            Arc::new(FollowedPolicy::default()),
        );
        let role = json!({
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        });
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        policy.update(|policy| policy.put_cluster_role(role));
        store.replace(Arc::clone(&policy));
        store.set_current(true);
        let guard = guard(mode, &store, &upstream);
        guard
            .followed()
            .set_authorizers(AuthorizerState::Transparent);
        guard.followed().set_bound_objects(true);
        upstream.0.lock().unwrap().decides_by_roles = mode == AuthorizerMode::Rbac;
        let mut model = Self {
            guard,
            store,
            policy,
            upstream,
            dice: Dice(seed | 1),
            streams: Vec::new(),
            losses: HashMap::new(),
            silent_since: None,
            webhook_since: None,
            delivered_at: None,
            pace,
            troubled_at: None,
            events: 0,
            started_at: Instant::now(),
            seed,
        };
        for (secret, name) in TOKENS {
            let user = Arc::new(user(secret, name));
            model.truth(|truth| truth.users.insert(secret, user));
            model.bind(name, true);
        }
        model.deliver();
        model.note();
        model
    }

    fn truth<T>(&self, change: impl FnOnce(&mut upstream::Truth) -> T) -> T {
        change(&mut self.upstream.0.lock().unwrap())
    }

    /// Notes which tokens have lost their right, since when, for each reason that holds.
    fn note(&mut self) {
        for (secret, _) in TOKENS {
            let causes = self.truth(|truth| truth.causes(secret));
            self.losses
                .retain(|(lost, cause), _| *lost != secret || causes.contains(cause));
            for cause in causes {
                let bound = match cause {
                    Cause::Roles => BY_ROLES,
                    Cause::Token if secret.starts_with("sa-") => BY_DELETION,
                    Cause::Token | Cause::Unseen => UNNOTICED + GRACE,
                };
                let at = Instant::now();
                let loss = Loss { at, bound, cause };
                self.losses.entry((secret, cause)).or_insert(loss);
            }
        }
    }

    fn losses(&self, secret: &'static str) -> impl Iterator<Item = Loss> + '_ {
        let of_token = self
            .losses
            .iter()
            .filter(move |((lost, _), _)| *lost == secret);
        of_token.map(|(_, loss)| *loss)
    }

    fn bind(&mut self, name: &'static str, is_bound: bool) {
        let has_changed = self.truth(|truth| match is_bound {
            true => truth.bound.insert(name.to_owned()),
            false => truth.bound.remove(name),
        });
        if has_changed {
            self.events += 1;
            self.note();
        }
        let lag = match self.pace {
            Pace::Prompt => 0,
            Pace::Slow => self.dice.below(4),
        };
        let at = Instant::now() + Duration::from_secs(lag);
        self.delivered_at.get_or_insert(at);
        self.catch_up();
    }

    /// Does what has become due.
    fn catch_up(&mut self) {
        let is_delivered = self.delivered_at.is_some_and(|at| at <= Instant::now());
        if is_delivered && self.silent_since.is_none() {
            self.delivered_at = None;
            self.deliver();
        }
        if self
            .silent_since
            .is_some_and(|at| at.elapsed() >= SILENT_MAX)
        {
            self.store.set_current(false);
        }
        if self.webhook_since.is_some_and(|at| at.elapsed() >= PROBE) {
            let state = match self.truth(|truth| truth.has_webhook) {
                true => AuthorizerState::Opaque,
                false => AuthorizerState::Transparent,
            };
            self.guard.followed().set_authorizers(state);
            self.webhook_since = None;
        }
    }

    /// Roles as the watch delivers them.
    fn deliver(&self) {
        let bound = self.truth(|truth| truth.bound.clone());
        let has_changed = self.policy.update(|policy| {
            let mut has_changed = false;
            for (_, name) in TOKENS {
                has_changed |= match bound.contains(name) {
                    true => policy.put_cluster_role_binding(binding(name)),
                    false => policy.remove_binding("", name),
                };
            }
            has_changed
        });
        if has_changed {
            self.guard.roles_changed(RoleScope::Cluster);
        }
    }

    fn trouble(&mut self) {
        self.troubled_at = Some(Instant::now());
    }

    fn is_troubled(&self) -> bool {
        self.silent_since.is_some() || self.truth(|truth| truth.is_down)
    }

    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.is_troubled() {
                self.trouble();
            }
            self.catch_up();
        }
        self.check_streams();
    }

    /// The bound of what was lost: the short one if everything was followed since.
    fn bound(&self, loss: Loss, otherwise: Duration) -> Duration {
        let was_troubled = self
            .troubled_at
            .is_some_and(|at| at + Duration::from_secs(15) >= loss.at);
        match was_troubled || self.is_troubled() {
            true => otherwise.max(loss.bound),
            false => loss.bound.min(otherwise),
        }
    }

    fn check_streams(&mut self) {
        self.streams.retain(|(_, lease, _)| !lease.is_revoked());
        for (secret, _, _) in &self.streams {
            for loss in self.losses(secret) {
                let bound = self.bound(loss, UNNOTICED + GRACE);
                let lasted = loss.at.elapsed();
                let bound = bound + Duration::from_secs(2) + self.pace.slack();
                assert!(
                    lasted <= bound,
                    "seed {}: a stream of {secret} outlives {loss:?} by {lasted:?}, bound {bound:?}",
                    self.seed
                );
            }
        }
    }

    async fn ask(&mut self, secret: &'static str, continuity: Continuity, keeps: bool) {
        let headers = map(&[("authorization", &format!("Bearer {secret}"))]);
        let peer = PeerIdentity::default();
        let caller = self.guard.authenticate(&headers, &peer, continuity).await;
        let Ok(caller) = caller else { return };
        let access = pods("a");
        let Ok(permitted) = self.guard.authorize(&caller, &access, continuity).await else {
            return;
        };
        let is_allowed = self.truth(|truth| truth.decides_by_roles) || secret != OTHER;
        assert!(is_allowed, "seed {}: another user's answer", self.seed);
        for loss in self.losses(secret) {
            let usual = match (continuity, loss.cause) {
                (Continuity::Resumed, _) => UNNOTICED,
                (Continuity::New, Cause::Token) => NEW_TOKEN,
                (Continuity::New, Cause::Roles | Cause::Unseen) => NEW_ACCESS,
            };
            let bound = match loss.cause {
                Cause::Roles => self.bound(loss, usual),
                Cause::Token | Cause::Unseen => usual,
            };
            let bound = bound + self.pace.slack();
            let (lasted, seed) = (loss.at.elapsed(), self.seed);
            assert!(
                lasted <= bound,
                "seed {seed}: {secret} is answered {lasted:?} after {loss:?}, {continuity:?}, bound {bound:?}"
            );
        }
        if keeps && self.streams.len() < 40 {
            let hold = permitted.lease.hold();
            self.streams.push((secret, permitted.lease, hold));
        }
    }

    async fn step(&mut self) {
        let token = self.dice.token();
        self.catch_up();
        if self.pace == Pace::Slow {
            let delay = Duration::from_millis(self.dice.below(2_000));
            self.truth(|truth| truth.delay = delay);
        }
        match self.dice.below(100) {
            0..20 => self.ask(token, Continuity::New, false).await,
            20..40 => self.ask(token, Continuity::New, true).await,
            40..60 => self.ask(token, Continuity::Resumed, true).await,
            60..72 => {
                if !self.streams.is_empty() {
                    let at = self.dice.below(self.streams.len() as u64);
                    self.streams.swap_remove(usize::try_from(at).unwrap());
                }
            }
            72..90 => {
                let seconds = 1 + self.dice.below(40);
                self.pass(seconds).await;
            }
            90 => {
                let seconds = self.dice.below(1_800);
                self.pass(seconds).await;
            }
            91..94 => {
                let name = TOKENS[usize::try_from(self.dice.below(6)).unwrap()].1;
                let is_bound = self.dice.below(3) > 0;
                self.bind(name, is_bound);
            }
            94 | 95 => self.delete_or_renew(token),
            96 => {
                let is_down = self.dice.below(4) == 0;
                self.truth(|truth| truth.is_down = is_down);
                self.trouble();
            }
            97 => self.toggle_silence(),
            98 => {
                self.truth(|truth| truth.has_webhook = !truth.has_webhook);
                self.events += 1;
                self.webhook_since = Some(Instant::now());
                self.note();
            }
            _ => {
                self.events += 1;
                self.guard.roles_changed(RoleScope::Known);
            }
        }
    }

    fn delete_or_renew(&mut self, token: &'static str) {
        self.events += 1;
        if self.truth(|truth| truth.gone.remove(token)).is_some() {
            self.note();
            return;
        }
        self.truth(|truth| truth.gone.insert(token, Instant::now()));
        self.note();
        if token.starts_with("sa-") {
            self.guard.bound_objects_deleted(vec![token.into()]);
        }
    }

    fn toggle_silence(&mut self) {
        self.events += 1;
        match self.silent_since.take() {
            None => self.silent_since = Some(Instant::now()),
            Some(_) => {
                self.deliver();
                self.store.set_current(true);
                self.guard.roles_changed(RoleScope::Known);
            }
        }
        self.trouble();
    }

    /// Questions are bounded by users, changes and hours, not by requests and streams.
    fn check_questions(&self, steps: usize) {
        let asked = self.truth(|truth| truth.asked);
        let hours = usize::try_from(self.started_at.elapsed().as_secs() / 2_700).unwrap() + 1;
        let budget = usize::try_from(self.started_at.elapsed().as_secs() / 550).unwrap();
        let bound = 2 * TOKENS.len() * (1 + 3 * self.events + hours + budget) + steps;
        assert!(
            asked <= bound,
            "seed {}: {asked} questions, bound {bound}",
            self.seed
        );
    }
}

async fn run(mode: AuthorizerMode, pace: Pace) {
    let steps = option_env!("AUTH_STEPS")
        .and_then(|steps| steps.parse().ok())
        .unwrap_or(6_000);
    let runs = (steps / 500_usize).max(1);
    for run in 0..runs {
        let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(run as u64 + 1);
        let mut model = Model::new(mode, pace, seed);
        let guard = model.guard.clone();
        let running = tokio::spawn(async move { guard.run().await });
        for _ in 0..500 {
            model.step().await;
        }
        // In quiet, everything that was lost ends.
        model.truth(|truth| truth.is_down = false);
        if model.silent_since.is_some() {
            model.toggle_silence();
        }
        model.pass(UNNOTICED.as_secs() + 60).await;
        for (secret, lease, _) in &model.streams {
            let is_allowed = model.truth(|truth| truth.allows(secret));
            assert!(is_allowed || lease.is_revoked(), "seed {seed}: {secret}");
        }
        model.check_questions(500);
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn property_self_check() {
    run(AuthorizerMode::SelfCheck, Pace::Prompt).await;
}

#[tokio::test(start_paused = true)]
async fn property_review() {
    run(AuthorizerMode::Review, Pace::Prompt).await;
}

#[tokio::test(start_paused = true)]
async fn property_rbac() {
    run(AuthorizerMode::Rbac, Pace::Prompt).await;
}

#[tokio::test(start_paused = true)]
async fn property_self_check_when_upstream_is_slow() {
    run(AuthorizerMode::SelfCheck, Pace::Slow).await;
}

#[tokio::test(start_paused = true)]
async fn property_review_when_upstream_is_slow() {
    run(AuthorizerMode::Review, Pace::Slow).await;
}

#[tokio::test(start_paused = true)]
async fn property_rbac_when_upstream_is_slow() {
    run(AuthorizerMode::Rbac, Pace::Slow).await;
}
