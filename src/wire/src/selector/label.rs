//! Label selectors: a conjunction of terms on labels. [`grammar`] parses them; `resource::names` validates keys and values.

use std::fmt;

use crate::resource::Object;

mod grammar;
mod term;
mod values;

use term::{LabelTerm, LabelTest};
pub use values::LabelValues;

/// A conjunction of terms on labels, in canonical form: terms sorted and unique, `==` and one-element sets as `=`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    terms: Vec<LabelTerm>,
}

impl LabelSelector {
    /// Parses the `labelSelector` parameter; `None` if it is not certain to be valid, so that upstream must decide.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut terms = grammar::parse(text)?;
        terms.sort_unstable();
        terms.dedup();
        terms.shrink_to_fit();
        Some(Self { terms })
    }

    /// Whether the object's labels meet every term.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        self.matches_labels(|key| object.label(key))
    }

    /// Whether labels meet every term, wherever they are stored: `label` returns the value of a key.
    #[must_use]
    pub fn matches_labels<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms
            .iter()
            .inspect(|_| count_evaluation())
            .all(|term| term.test.holds(label(&term.key)))
    }

    /// The labels that every match must have: the key, and the allowed values; `None` if any value is allowed.
    pub fn required(&self) -> impl Iterator<Item = (&str, Option<&LabelValues>)> {
        self.terms.iter().filter_map(|term| match &term.test {
            LabelTest::In(set) => Some((&*term.key, Some(set))),
            LabelTest::Exists | LabelTest::Greater(_) | LabelTest::Less(_) => {
                Some((&*term.key, None))
            }
            LabelTest::NotIn(_) | LabelTest::Absent => None,
        })
    }

    /// Number of distinct terms.
    #[must_use]
    pub fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// Whether there are no terms, so that everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    /// Number of terms that this thread has evaluated. Counted only without optimisation, so that benchmarks do not pay for it.
    pub static EVALUATED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts evaluations in tests, which assert the cost of selectors as work and not as time.
fn count_evaluation() {
    #[cfg(all(any(test, feature = "testing"), debug_assertions))]
    EVALUATED.set(EVALUATED.get() + 1);
}

impl fmt::Display for LabelSelector {
    /// The canonical form, which parses to an equal selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}
