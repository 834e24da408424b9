//! Label and field selectors: their grammars, and whether an object matches.

mod labels;

use super::kinds::{SelectableField, ServedKind};
use super::object::Object;
use super::status::Status;
use labels::LabelTerm;

/// What a request selects. An empty selector selects everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    /// Empty for all namespaces.
    pub(super) namespace: String,
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug)]
struct FieldTerm {
    field: Field,
    value: String,
    is_negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Index among the kind's selectable fields.
    Value(usize),
}

impl Selector {
    /// Parses the parameters of a request for objects of a kind.
    ///
    /// # Errors
    /// 400, with a text that is not kube-apiserver's.
    pub(super) fn parse(
        kind: &ServedKind,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Status> {
        let refuse = |selector: &str| {
            let message = format!("cannot understand the selector {selector:?}");
            Status::bad_request(message)
        };
        let labels = labels::parse(labels).ok_or_else(|| refuse(labels))?;
        let terms = field_terms(fields).ok_or_else(|| refuse(fields))?;
        let fields = terms.into_iter().map(|term| term.resolve(kind));
        Ok(Self {
            namespace: namespace.to_owned(),
            labels,
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    /// Adds a name, as in the path of a watch of one object.
    ///
    /// # Errors
    /// 400 if the field selector names another.
    pub(super) fn with_name(mut self, name: &str) -> Result<Self, Status> {
        match self.pinned_name() {
            Some(pinned) if pinned != name => {
                let message = "fieldSelector metadata.name doesn't match requested name";
                return Err(Status::bad_request(message));
            }
            Some(_) => {}
            None => self.fields.push(FieldTerm {
                field: Field::Name,
                value: name.to_owned(),
                is_negated: false,
            }),
        }
        Ok(self)
    }

    /// The only name that matches, if the field selector pins it.
    pub(super) fn pinned_name(&self) -> Option<&str> {
        self.pinned(Field::Name)
    }

    /// The only namespace that matches.
    pub(super) fn pinned_namespace(&self) -> Option<&str> {
        match self.namespace.as_str() {
            "" => self.pinned(Field::Namespace),
            namespace => Some(namespace),
        }
    }

    fn pinned(&self, field: Field) -> Option<&str> {
        let mut terms = self.fields.iter();
        let term = terms.find(|term| term.field == field && !term.is_negated)?;
        Some(&term.value)
    }

    /// Whether there are label or field terms: then a list does not say how many items remain.
    pub(super) fn has_terms(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.key.namespace())
            && self.labels.iter().all(|term| {
                let value = object.labels.get(&term.key);
                term.test.holds(value.map(String::as_str))
            })
            && self.fields.iter().all(|term| {
                let value = match term.field {
                    Field::Name => object.key.name(),
                    Field::Namespace => object.key.namespace(),
                    Field::Value(index) => &object.fields[index],
                };
                (value == term.value) != term.is_negated
            })
    }
}

/// A field selector's term with a label that may be unknown.
struct RawTerm {
    label: String,
    value: String,
    is_negated: bool,
}

impl RawTerm {
    fn resolve(self, kind: &ServedKind) -> Result<FieldTerm, Status> {
        let is_label = |field: &SelectableField| field.label == self.label;
        let field = match self.label.as_str() {
            "metadata.name" => Some(Field::Name),
            "metadata.namespace" if kind.is_namespaced || !kind.is_custom => Some(Field::Namespace),
            _ => kind
                .selectable_fields()
                .iter()
                .position(is_label)
                .map(Field::Value),
        };
        let unknown = || Status::bad_request(format!("field label not supported: {}", self.label));
        let field = field.ok_or_else(unknown)?;
        Ok(FieldTerm {
            field,
            value: self.value,
            is_negated: self.is_negated,
        })
    }
}

pub(super) fn is_label_selector(text: &str) -> bool {
    labels::parse(text).is_some()
}

/// The value that a field selector pins for a label, as far as it can be parsed.
pub(super) fn pinned_value(selector: &str, label: &str) -> Option<String> {
    let mut terms = field_terms(selector)?.into_iter();
    terms
        .find(|term| term.label == label && !term.is_negated)
        .map(|term| term.value)
}

fn field_terms(selector: &str) -> Option<Vec<RawTerm>> {
    let texts = split_terms(selector).into_iter();
    texts
        .filter(|text| !text.is_empty())
        .map(field_term)
        .collect()
}

/// Splits at commas that no backslash precedes.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (at, character) in selector.char_indices() {
        if character == ',' && !is_escaped {
            terms.push(&selector[start..at]);
            start = at + 1;
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    terms.push(&selector[start..]);
    terms
}

fn field_term(text: &str) -> Option<RawTerm> {
    let (label, rest) = text.split_at(text.find(['=', '!'])?);
    let mut operators = ["!=", "==", "="].into_iter();
    let value = operators.find_map(|operator| rest.strip_prefix(operator))?;
    Some(RawTerm {
        label: label.to_owned(),
        value: unescape(value)?,
        is_negated: rest.starts_with('!'),
    })
}

/// Removes backslashes, which precede the characters that are not legal without one.
fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => characters.next().filter(|next| "\\,=".contains(*next))?,
            ',' | '=' => return None,
            character => character,
        });
    }
    Some(out)
}
