//! Counts the reviews that were answered, for tests of how many reach the API server.

use std::collections::HashMap;
use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use crate::apiserver::review_kinds::Review;

/// Maximum number of subjects that are counted separately. Reviews of further subjects count only in the totals.
const SUBJECTS_MAX: usize = 100_000;

/// The reviews answered since the start, or since the last reset. `Debug` shows only the totals, because subjects may be tokens.
#[derive(Default)]
pub struct ReviewCounts(Mutex<ReviewTable>);

#[derive(Default)]
struct ReviewTable {
    totals: ReviewTotals,
    /// The number of reviews by kind and subject: a token, a user, or a user and an access.
    subjects: HashMap<(Review, String), u64>,
}

/// The number of answered reviews of each kind. Refused reviews do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewTotals {
    /// `TokenReview`.
    pub token: u64,
    /// `SelfSubjectReview`.
    pub self_subject: u64,
    /// `SubjectAccessReview`.
    pub subject_access: u64,
    /// `LocalSubjectAccessReview`.
    pub local_subject_access: u64,
    /// `SelfSubjectAccessReview`.
    pub self_subject_access: u64,
}

impl ReviewCounts {
    /// The number of reviews of each kind.
    #[must_use]
    pub fn totals(&self) -> ReviewTotals {
        self.locked().totals
    }

    /// The number of reviews about one subject. The subject of a `TokenReview` is the token; that of a `SelfSubjectReview` is the
    /// sender's name; that of the others is the user's name and the access, such as `ann list/apps/deployments//default/`: verb,
    /// group, resource, subresource, namespace and name.
    #[must_use]
    pub fn of(&self, review: Review, subject: &str) -> u64 {
        let key = (review, subject.to_owned());
        self.locked().subjects.get(&key).copied().unwrap_or(0)
    }

    /// The number of different subjects.
    #[must_use]
    pub fn subject_count(&self, review: Review) -> usize {
        let counts = self.locked();
        counts.subjects.keys().filter(|key| key.0 == review).count()
    }

    /// The largest number of reviews about one subject.
    #[must_use]
    pub fn most(&self, review: Review) -> u64 {
        let counts = self.locked();
        let of_review = counts.subjects.iter().filter(|(key, _)| key.0 == review);
        of_review.map(|(_, count)| *count).max().unwrap_or(0)
    }

    /// Sets all counts to zero.
    pub fn reset(&self) {
        *self.locked() = ReviewTable::default();
    }

    /// Counts an answered review.
    pub(super) fn record(&self, review: Review, subject: String) {
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

    fn locked(&self) -> MutexGuard<'_, ReviewTable> {
        self.0.lock()
    }
}

impl fmt::Debug for ReviewCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(formatter)
    }
}
