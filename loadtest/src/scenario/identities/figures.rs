//! What reached the API server and what the gateway used, between two moments.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use kube_fanout_testkit::apiserver::reviews::{Review, ReviewCounts};

use super::client::ResponseCounts;
use crate::process::Usage;
use crate::results::{Results, at_share, mib};

/// Counters at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    at: Instant,
    /// TokenReviews and SelfSubjectReviews.
    tokens: u64,
    /// SubjectAccessReviews and SelfSubjectAccessReviews.
    accesses: u64,
    rules: u64,
    responses: u64,
    unauthorized: u64,
    forbidden: u64,
    too_many: u64,
    failed: u64,
    gateway: Usage,
}

impl Moment {
    pub fn now(reviews: &ReviewCounts, counts: &ResponseCounts, gateway: u32) -> Result<Self> {
        let totals = reviews.totals();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Self {
            at: Instant::now(),
            tokens: totals.token + totals.self_subject,
            accesses: totals.subject_access
                + totals.self_subject_access
                + totals.local_subject_access,
            rules: totals.self_subject_rules,
            responses: count(&counts.started),
            unauthorized: count(&counts.unauthorized),
            forbidden: count(&counts.forbidden),
            too_many: count(&counts.too_many),
            failed: count(&counts.failed),
            gateway: Usage::of(gateway)?,
        })
    }

    /// Reviews of both kinds, without those about rules.
    fn reviews(&self) -> f64 {
        (self.tokens + self.accesses) as f64
    }

    /// Reviews a second since `from`.
    pub fn rate_since(&self, from: &Self) -> f64 {
        (self.reviews() - from.reviews()) / self.seconds_since(from)
    }

    /// CPU of the gateway since `from`, in % of a core.
    pub fn cpu_percent_since(&self, from: &Self) -> f64 {
        let cpu = self.gateway.cpu.saturating_sub(from.gateway.cpu);
        cpu.as_secs_f64() / self.seconds_since(from) * 100.0
    }

    fn seconds_since(&self, from: &Self) -> f64 {
        self.at.duration_since(from.at).as_secs_f64().max(1e-9)
    }
}

/// All reviews and refusals between two moments. A gateway that has just started has used its whole CPU time.
pub fn report_total(results: &mut Results, phase: &str, from: &Moment, until: &Moment) {
    let mut figure =
        |what: &str, value: u64| results.figure(&format!("{phase}: {what}"), value as f64);
    figure("token reviews", until.tokens - from.tokens);
    figure("access reviews", until.accesses - from.accesses);
    figure("refused with 401", until.unauthorized - from.unauthorized);
    figure("refused with 403", until.forbidden - from.forbidden);
    figure("refused with 429", until.too_many - from.too_many);
    figure("failed with 500 or above", until.failed - from.failed);
    let gateway = until.gateway;
    results.figure(
        &format!("{phase}: gateway CPU, s"),
        gateway.cpu.as_secs_f64(),
    );
    results.figure(&format!("{phase}: gateway RSS, MiB"), mib(gateway.rss));
}

/// Rates between two moments of one gateway.
pub fn report_rates(results: &mut Results, phase: &str, from: &Moment, until: &Moment) {
    let seconds = until.seconds_since(from);
    let mut rate = |what: &str, count: u64| {
        results.figure(&format!("{phase}: {what} a second"), count as f64 / seconds);
    };
    rate("token reviews", until.tokens - from.tokens);
    rate("access reviews", until.accesses - from.accesses);
    rate("rules reviews", until.rules - from.rules);
    rate("requests of clients", until.responses - from.responses);
    let name = format!("{phase}: reviews a second");
    results.figure(&name, until.rate_since(from));
    results.figure(
        &format!("{phase}: gateway CPU, % of a core"),
        until.cpu_percent_since(from),
    );
}

/// The reviews between two moments that a rate of so many a second does not explain.
pub fn report_beyond(results: &mut Results, phase: &str, [from, until]: [&Moment; 2], rate: f64) {
    let expected = rate * until.seconds_since(from);
    let beyond = (until.reviews() - from.reviews() - expected).max(0.0);
    results.figure(&format!("{phase}: reviews beyond the steady rate"), beyond);
}

/// How late watches ended, of so many that had to.
pub fn report_ends(results: &mut Results, what: &str, ends: &[Duration], count: usize) {
    let mut seconds: Vec<f64> = ends.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    results.figure(&format!("{what}: watches ended"), seconds.len() as f64);
    results.figure(
        &format!("{what}: watches not ended"),
        (count - seconds.len().min(count)) as f64,
    );
    results.figure(&format!("{what}: end p50, s"), at_share(&seconds, 0.5));
    results.figure(&format!("{what}: end p99, s"), at_share(&seconds, 0.99));
}

/// The most reviews about one subject: a token or a name, or a name and an access.
pub fn report_subjects(results: &mut Results, reviews: &ReviewCounts) {
    for (review, what) in [
        (Review::Token, "token reviews"),
        (Review::SubjectAccess, "access reviews"),
        (Review::SelfSubjectAccess, "self access reviews"),
    ] {
        let subjects = reviews.subject_count(review) as f64;
        results.figure(&format!("{what}: subjects"), subjects);
        results.figure(
            &format!("{what}: most about one subject"),
            reviews.most(review) as f64,
        );
    }
}

/// Good credentials that were refused are faults; refusals for lack of capacity are not.
pub fn judge(results: &mut Results, last: &Moment) {
    for (count, what) in [
        (last.unauthorized, "401"),
        (last.forbidden, "403"),
        (last.failed, "a status of 500 or above"),
    ] {
        if count > 0 {
            results.fault(format!(
                "target: {count} requests with good credentials got {what}"
            ));
        }
    }
}
