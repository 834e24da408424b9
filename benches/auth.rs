//! Time to authenticate and authorize a request whose authentication and authorization results are cached: wall time of each request, as
//! quantiles.
//!
//! A plain program: `cargo bench --bench auth [-- --quick]`. Upstream is a stub that allows everything. It is called once for each token
//! and for each distinct authorization request.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench is a driver: it reads the clock, prints, and panics at the first failure"
)]

#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use kube_fanout::auth::access::{Access, ResourceAccess};
use kube_fanout::auth::access_review::AccessVerdict;
use kube_fanout::auth::authenticator::{Authenticator, AuthenticatorSettings};
use kube_fanout::auth::authorizer::Authorizer;
use kube_fanout::auth::caller::{BearerToken, Continuity, PeerIdentity};
use kube_fanout::auth::digest::CredentialHasher;
use kube_fanout::auth::guard::{AuthorizerMode, Deciders, Guard, GuardSettings};
use kube_fanout::auth::lease::LeaseHold;
use kube_fanout::auth::question::AccessQuestion;
use kube_fanout::auth::token_cache::{TokenCache, WallClock};
use kube_fanout::auth::token_review::{TokenAuthenticator, TokenVerdict};
use kube_fanout::auth::upstream::{ReviewError, ReviewPurpose};
use kube_fanout::auth::user::User;
use kube_fanout::config::ReviewBudget;
use kube_fanout::metrics::Metrics;

use record::{Claim, Record};
use rounds::Effort;

const USERS: usize = 500;
/// Open streams, each of which holds a lease on its permission.
const STREAMS: usize = 5_000;

#[derive(Debug)]
struct Upstream;

impl TokenAuthenticator for Upstream {
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        _: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        let user = User {
            name: token.secret().to_owned(),
            groups: vec!["group".to_owned(); 10],
            ..User::default()
        };
        Box::pin(std::future::ready(Ok(Some(Arc::new(user)))))
    }
}

impl Authorizer for Upstream {
    fn decide<'a>(
        &'a self,
        _: &'a AccessQuestion,
        _: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(AccessVerdict {
            is_allowed: true,
            reason: String::new(),
        })))
    }
}

fn guard(metrics: &Metrics) -> Guard {
    let clock: WallClock = Arc::new(SystemTime::now);
    let tokens = TokenCache::new(
        Arc::new(Upstream),
        Arc::clone(&clock),
        metrics.authentication(),
    );
    let settings = AuthenticatorSettings {
        anonymous: false,
        client_ca: None,
        front_proxy: None,
    };
    let tokens = tokens.expect("random bytes");
    let authenticator = Authenticator::new(settings, tokens, clock, metrics.authentication());
    Guard::new(
        GuardSettings {
            mode: AuthorizerMode::Review,
            allow_ttl: Duration::from_secs(300),
            deny_ttl: Duration::from_secs(30),
            reauthorize_interval: Duration::from_secs(3_600),
            review_budget: ReviewBudget::Auto,
            reauthorize_grace: Duration::from_secs(300),
        },
        Arc::new(authenticator),
        Deciders {
            authorizer: Arc::new(Upstream),
            policy: Arc::default(),
        },
        CredentialHasher::random().expect("random bytes"),
        metrics.authorization(),
    )
}

/// Authenticates and authorizes one request of a user that lists all ConfigMaps.
async fn pass(guard: &Guard, headers: &HeaderMap, access: &Access) -> LeaseHold {
    let caller = guard
        .authenticate(headers, &PeerIdentity::default(), Continuity::New)
        .await;
    let caller = caller.expect("authenticated");
    let permitted = guard.authorize(&caller, access, Continuity::New).await;
    permitted.expect("allowed").lease.hold()
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let effort = Effort::of_arguments();
    let requests = effort.pick(200_000, 2_000);
    let metrics = Metrics::new().expect("metrics");
    let guard = guard(&metrics);
    let users: Vec<HeaderMap> = (0..USERS)
        .map(|number| {
            let token = format!("Bearer token-of-user-{number:0>900}");
            let token = HeaderValue::from_str(&token).expect("a header");
            HeaderMap::from_iter([(AUTHORIZATION, token)])
        })
        .collect();
    let access = Access::Resource(ResourceAccess {
        verb: "watch".to_owned(),
        version: "v1".to_owned(),
        resource: "configmaps".to_owned(),
        ..ResourceAccess::default()
    });
    let mut open = Vec::with_capacity(STREAMS);
    for number in 0..STREAMS {
        open.push(pass(&guard, &users[number % USERS], &access).await);
    }
    let about = "Time to authenticate and authorize a request whose results are cached, with 500 users and 5,000 open streams.";
    let mut record = Record::new("auth", about, effort);
    let mut quantiles = [Vec::new(), Vec::new()];
    for _ in 0..effort.pick(3, 1) {
        let mut took = Vec::with_capacity(requests);
        for number in 0..requests {
            let begun = Instant::now();
            let hold = pass(&guard, &users[number % USERS], &access).await;
            took.push(begun.elapsed());
            drop(hold);
        }
        took.sort_unstable();
        let at = |thousandths: usize| took[(took.len() * thousandths / 1_000).min(took.len() - 1)];
        println!(
            "authenticate and authorize from memory, {USERS} users, {STREAMS} streams open, {requests} requests: p50 {:?}, p99 {:?}, p99.9 {:?}, most {:?}",
            at(500),
            at(990),
            at(999),
            at(1_000)
        );
        for (thousandths, values) in [500, 990].into_iter().zip(&mut quantiles) {
            values.push(at(thousandths).as_secs_f64() * 1e6);
        }
    }
    for (name, values) in ["p50", "p99"].into_iter().zip(&quantiles) {
        let figure = format!("{name}, µs");
        record.rounds("from memory / ours", &figure, values);
        record.claim(Claim {
            what: name,
            figure: &figure,
            of: "from memory / ours",
            to: None,
            at_most: None,
        });
    }
    drop(open);
    record.write()
}
