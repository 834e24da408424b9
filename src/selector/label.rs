//! Label selectors: a conjunction of terms on labels. [`grammar`] parses them; `resource::names` validates keys and values.

use std::fmt;

use crate::resource::Object;

mod grammar;
mod values;

pub use values::LabelValues;

/// Why a label selector is refused: the whole message of the API server's 400 (docs/PROTOCOL.md §2.5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// A conjunction of terms on labels, in canonical form: terms sorted and unique, `==` and one-element sets as `=`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    terms: Vec<LabelTerm>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct LabelTerm {
    key: Box<str>,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum LabelTest {
    In(LabelValues),
    NotIn(LabelValues),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses the `labelSelector` parameter.
    ///
    /// # Errors
    /// The API server's message for an error in the grammar, in a key or in a value.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = grammar::parse(text).map_err(SelectorError)?;
        terms.sort_unstable();
        terms.dedup();
        terms.shrink_to_fit();
        Ok(Self { terms })
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

impl LabelTest {
    fn holds(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(set) => label.is_some_and(|value| set.contains(value)),
            Self::NotIn(set) => !label.is_some_and(|value| set.contains(value)),
            Self::Exists => label.is_some(),
            Self::Absent => label.is_none(),
            Self::Greater(bound) => number().is_some_and(|value| value > *bound),
            Self::Less(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Number of terms that this thread has evaluated.
    pub(crate) static EVALUATED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts evaluations in tests, which assert the cost of selectors as work and not as time.
fn count_evaluation() {
    #[cfg(test)]
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

impl fmt::Display for LabelTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::In(set) => write_set(f, key, ["=", " in "], set),
            LabelTest::NotIn(set) => write_set(f, key, ["!=", " notin "], set),
            LabelTest::Exists => f.write_str(key),
            LabelTest::Absent => write!(f, "!{key}"),
            LabelTest::Greater(bound) => write!(f, "{key}>{bound}"),
            LabelTest::Less(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn write_set(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    [one, many]: [&str; 2],
    set: &LabelValues,
) -> fmt::Result {
    let is_one = set.len() == 1;
    f.write_str(key)?;
    f.write_str(if is_one { one } else { many })?;
    if !is_one {
        f.write_str("(")?;
    }
    for (index, value) in set.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        f.write_str(value)?;
    }
    f.write_str(if is_one { "" } else { ")" })
}
