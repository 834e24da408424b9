//! How many reviews were answered, in total and about each subject.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use serde::Serialize;

use super::Review;

/// How many subjects are counted each by itself: more than 110,000 tokens and questions, and as many users again.
const SUBJECTS_MAX: usize = 400_000;

/// The reviews that were answered. `Debug` shows only the totals: subjects may be tokens.
#[derive(Default)]
pub struct ReviewCounts(Mutex<ReviewTable>);

#[derive(Default)]
struct ReviewTable {
    totals: ReviewTotals,
    subjects: HashMap<(Review, String), u64>,
}

/// The number of answered reviews of each kind. Refused ones do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of Review")]
pub struct ReviewTotals {
    pub token: u64,
    pub self_subject: u64,
    pub subject_access: u64,
    pub local_subject_access: u64,
    pub self_subject_access: u64,
    pub self_subject_rules: u64,
}

impl ReviewCounts {
    /// The number of reviews of each kind.
    #[must_use]
    pub fn totals(&self) -> ReviewTotals {
        self.0.lock().totals
    }

    /// The number of reviews about a subject: a token, the sender's name, or a name and an access such as
    /// `ann list/apps/deployments//default/` (verb, group, resource, subresource, namespace, name).
    #[must_use]
    pub fn of(&self, review: Review, subject: &str) -> u64 {
        let subjects = &self.0.lock().subjects;
        let key = (review, subject.to_owned());
        subjects.get(&key).copied().unwrap_or(0)
    }

    /// The number of different subjects.
    #[must_use]
    pub fn subject_count(&self, review: Review) -> usize {
        let table = self.0.lock();
        table
            .subjects
            .keys()
            .filter(|(of, _)| *of == review)
            .count()
    }

    /// The largest number of reviews about one subject.
    #[must_use]
    pub fn most(&self, review: Review) -> u64 {
        let table = self.0.lock();
        let counts = table.subjects.iter().filter(|((of, _), _)| *of == review);
        counts.map(|(_, count)| *count).max().unwrap_or(0)
    }

    /// Begins again.
    pub fn reset(&self) {
        *self.0.lock() = ReviewTable::default();
    }

    pub(super) fn record(&self, review: Review, subject: String) {
        let mut table = self.0.lock();
        let totals = &mut table.totals;
        *match review {
            Review::SelfSubject => &mut totals.self_subject,
            Review::Token => &mut totals.token,
            Review::LocalSubjectAccess => &mut totals.local_subject_access,
            Review::SelfSubjectAccess => &mut totals.self_subject_access,
            Review::SubjectAccess => &mut totals.subject_access,
            Review::SelfSubjectRules => &mut totals.self_subject_rules,
        } += 1;
        let key = (review, subject);
        if table.subjects.len() < SUBJECTS_MAX || table.subjects.contains_key(&key) {
            *table.subjects.entry(key).or_default() += 1;
        }
    }
}

impl fmt::Debug for ReviewCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(f)
    }
}
