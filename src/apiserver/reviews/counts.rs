//! How many reviews were served: for tests that count what reaches the API server.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::Review;

/// Subjects that are told apart; more of them are only counted in all.
const SUBJECTS_MAX: usize = 100_000;

/// Reviews served since the start, or since the last reset. Never shows tokens.
#[derive(Default)]
pub struct ReviewCounts(Mutex<ReviewTable>);

#[derive(Default)]
struct ReviewTable {
    totals: ReviewTotals,
    /// By token, user, or user and question.
    subjects: HashMap<(Review, String), u64>,
}

/// How many reviews of each kind were served. Those that were refused, by order or otherwise, are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewTotals {
    /// Whom a token stands for.
    pub token: u64,
    /// Who asks.
    pub self_subject: u64,
    /// What a user may do.
    pub subject_access: u64,
    /// What a user may do in one namespace.
    pub local_subject_access: u64,
    /// What the sender may do.
    pub self_subject_access: u64,
}

impl ReviewCounts {
    /// How many of each kind.
    #[must_use]
    pub fn totals(&self) -> ReviewTotals {
        self.locked().totals
    }

    /// How many there were about one subject: a token; the name of the user who asks about itself; or the user's name and the
    /// question, such as `ann list/apps/deployments//default/`: verb, group, resource, subresource, namespace and name.
    #[must_use]
    pub fn of(&self, review: Review, subject: &str) -> u64 {
        let key = (review, subject.to_owned());
        self.locked().subjects.get(&key).copied().unwrap_or(0)
    }

    /// How many different subjects there were.
    #[must_use]
    pub fn subject_count(&self, review: Review) -> usize {
        let counts = self.locked();
        counts.subjects.keys().filter(|key| key.0 == review).count()
    }

    /// The most that there were about any one subject.
    #[must_use]
    pub fn most(&self, review: Review) -> u64 {
        let counts = self.locked();
        let of_review = counts.subjects.iter().filter(|(key, _)| key.0 == review);
        of_review.map(|(_, count)| *count).max().unwrap_or(0)
    }

    /// Begins anew.
    pub fn reset(&self) {
        *self.locked() = ReviewTable::default();
    }

    pub(super) fn served(&self, review: Review, subject: String) {
        let counts = &mut *self.locked();
        let totals = &mut counts.totals;
        *match review {
            Review::SelfSubject => &mut totals.self_subject,
            Review::Token => &mut totals.token,
            Review::LocalSubjectAccess => &mut totals.local_subject_access,
            Review::SelfSubjectAccess => &mut totals.self_subject_access,
            Review::SubjectAccess => &mut totals.subject_access,
        } += 1;
        let key = (review, subject);
        if counts.subjects.len() < SUBJECTS_MAX || counts.subjects.contains_key(&key) {
            *counts.subjects.entry(key).or_default() += 1;
        }
    }

    // Nothing under the lock panics half way.
    fn locked(&self) -> MutexGuard<'_, ReviewTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReviewCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(formatter)
    }
}
