//! Field selectors: a conjunction of (in)equalities on the few fields that a resource declares selectable (docs/PROTOCOL.md §2.6).

use std::fmt;

use crate::resource::{FieldTable, Object};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// A conjunction of terms on fields, in canonical form: terms sorted and unique.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FieldTerm {
    subject: FieldSubject,
    relation: Relation,
    value: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum FieldSubject {
    Name,
    Namespace,
    /// Index in the field table, and the field's label.
    Field(usize, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Relation {
    Is,
    IsNot,
}

impl FieldSelector {
    /// Parses the `fieldSelector` parameter for a resource with these selectable fields; `None` if it is malformed, or names a field that
    /// is not in the table. Upstream must decide then.
    #[must_use]
    pub fn parse(text: &str, table: FieldTable) -> Option<Self> {
        let terms = raw_terms(text)?.into_iter().map(|term| {
            Some(FieldTerm {
                subject: FieldSubject::of(term.label, table)?,
                relation: term.relation,
                value: term.value.into(),
            })
        });
        let mut terms = terms.collect::<Option<Vec<_>>>()?;
        terms.sort_unstable();
        terms.dedup();
        terms.shrink_to_fit();
        Some(Self { terms })
    }

    /// The selector of one object by name, equivalent to a name in a `/watch/` path (docs/PROTOCOL.md §1.2).
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            terms: vec![FieldTerm {
                subject: FieldSubject::Name,
                relation: Relation::Is,
                value: name.into(),
            }],
        }
    }

    /// Whether the object's fields meet every term.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        self.terms.iter().all(|term| {
            let equal = term.subject.value_in(object) == &*term.value;
            match term.relation {
                Relation::Is => equal,
                Relation::IsNot => !equal,
            }
        })
    }

    /// Whether there are no terms, so that everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Number of distinct terms.
    #[must_use]
    pub fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// Whether all terms are about name and namespace, which never change.
    #[must_use]
    pub fn is_about_key(&self) -> bool {
        self.terms.iter().all(|term| match term.subject {
            FieldSubject::Name | FieldSubject::Namespace => true,
            FieldSubject::Field(..) => false,
        })
    }

    /// The name that every match must have, if the selector requires one.
    #[must_use]
    pub fn pinned_name(&self) -> Option<&str> {
        self.pinned(|subject| subject == FieldSubject::Name)
    }

    /// The namespace that every match must have, if the selector requires one.
    #[must_use]
    pub fn pinned_namespace(&self) -> Option<&str> {
        self.pinned(|subject| subject == FieldSubject::Namespace)
    }

    /// The fields for which every match must have a certain value: index in the field table, and value.
    pub fn pinned_fields(&self) -> impl Iterator<Item = (usize, &str)> {
        self.terms
            .iter()
            .filter_map(|term| match (term.subject, term.relation) {
                (FieldSubject::Field(index, _), Relation::Is) => Some((index, &*term.value)),
                _ => None,
            })
    }

    /// Whether a term is about the namespace, which cluster-scoped resources may refuse.
    #[must_use]
    pub fn names_namespace(&self) -> bool {
        self.terms
            .iter()
            .any(|term| term.subject == FieldSubject::Namespace)
    }

    fn pinned(&self, wanted: impl Fn(FieldSubject) -> bool) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.relation == Relation::Is && wanted(term.subject))
            .map(|term| &*term.value)
    }
}

impl FieldSubject {
    fn of(label: &str, table: FieldTable) -> Option<Self> {
        match label {
            NAME => Some(Self::Name),
            NAMESPACE => Some(Self::Namespace),
            _ => table
                .index_of(label)
                .map(|index| Self::Field(index, table.fields()[index].label)),
        }
    }

    fn value_in(self, object: &Object) -> &str {
        match self {
            Self::Name => object.key().name(),
            Self::Namespace => object.key().namespace(),
            Self::Field(index, _) => object.field(index),
        }
    }
}

/// The value that a selector's text requires for a field, whatever the resource; `None` also if the text is malformed.
/// Authorization takes the request's name from it before the resource is known (docs/PROTOCOL.md §1.1 h).
#[must_use]
pub fn pinned_in(text: &str, label: &str) -> Option<String> {
    raw_terms(text)?
        .into_iter()
        .find(|term| term.relation == Relation::Is && term.label == label)
        .map(|term| term.value)
}

impl fmt::Display for FieldSelector {
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

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.subject {
            FieldSubject::Name => NAME,
            FieldSubject::Namespace => NAMESPACE,
            FieldSubject::Field(_, label) => label,
        })?;
        f.write_str(match self.relation {
            Relation::Is => "=",
            Relation::IsNot => "!=",
        })?;
        for c in self.value.chars() {
            if matches!(c, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

struct RawTerm<'a> {
    label: &'a str,
    relation: Relation,
    value: String,
}

/// The terms in the API server's order, which is bytewise by their text: of several names that a selector requires, the first one is
/// authorized. `None` if a term is malformed.
fn raw_terms(text: &str) -> Option<Vec<RawTerm<'_>>> {
    let mut parts = split_at_commas(text);
    parts.sort_unstable();
    let mut terms = Vec::with_capacity(parts.len());
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let (label, relation, value) = split_at_operator(part)?;
        let value = unescape(value)?;
        // A term with only an operator selects everything.
        if !label.is_empty() || !value.is_empty() {
            terms.push(RawTerm {
                label,
                relation,
                value,
            });
        }
    }
    Some(terms)
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_at_operator(term: &str) -> Option<(&str, Relation, &str)> {
    let equals = term.find('=')?;
    let (left, right) = (&term[..equals], &term[equals + 1..]);
    if let Some(label) = left.strip_suffix('!') {
        return Some((label, Relation::IsNot, right));
    }
    Some((left, Relation::Is, right.strip_prefix('=').unwrap_or(right)))
}

fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            _ => out.push(c),
        }
    }
    Some(out)
}
