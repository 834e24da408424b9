//! The grammar of label selectors (docs/PROTOCOL.md §2.5).

use std::collections::BTreeSet;

use crate::apiserver::names::{is_label_key, is_label_value};

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelTerm {
    pub(super) key: String,
    pub(super) test: LabelTest,
}

/// What a label's value must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LabelTest {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

impl LabelTest {
    pub(super) fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

const SYMBOLS: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

/// A token: a word, a symbol, or the empty text at the end.
fn lex(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let len = match text.chars().next() {
        None => 0,
        Some('=' | '!') if text[1..].starts_with('=') => 2,
        Some(first) if SYMBOLS.contains(&first) => 1,
        Some(_) => text
            .find(|character: char| SYMBOLS.contains(&character) || " \t\r\n".contains(character))
            .unwrap_or(text.len()),
    };
    text.split_at(len)
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(SYMBOLS)
}

/// Parses a selector; `None` if it is not legal.
pub(super) fn parse(text: &str) -> Option<Vec<LabelTerm>> {
    let mut tokens = Tokens { rest: text };
    let mut terms = Vec::new();
    if tokens.peek().is_empty() {
        return Some(terms);
    }
    loop {
        terms.push(tokens.term()?);
        match tokens.take() {
            "" => return Some(terms),
            "," => {}
            _ => return None,
        }
    }
}

/// The tokens that are left.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> &'a str {
        lex(self.rest).0
    }

    fn take(&mut self) -> &'a str {
        let (token, rest) = lex(self.rest);
        self.rest = rest;
        token
    }

    fn term(&mut self) -> Option<LabelTerm> {
        let is_negated = self.peek() == "!";
        if is_negated {
            self.take();
        }
        let key = self.take();
        if !is_label_key(key) {
            return None;
        }
        let test = match self.peek() {
            _ if is_negated => LabelTest::Absent,
            "" | "," => LabelTest::Exists,
            _ => self.comparison()?,
        };
        Some(LabelTerm {
            key: key.to_owned(),
            test,
        })
    }

    fn comparison(&mut self) -> Option<LabelTest> {
        let operator = self.take();
        let values = match operator {
            "in" | "notin" => self.set()?,
            "=" | "==" | "!=" | ">" | "<" => BTreeSet::from([self.value()]),
            _ => return None,
        };
        if !values.iter().all(|value| is_label_value(value)) {
            return None;
        }
        let number = || values.first()?.parse().ok();
        Some(match operator {
            ">" => LabelTest::Greater(number()?),
            "<" => LabelTest::Less(number()?),
            "!=" | "notin" => LabelTest::NotIn(values),
            _ => LabelTest::In(values),
        })
    }

    /// A value, which may be empty.
    fn value(&mut self) -> String {
        match is_word(self.peek()) {
            true => self.take().to_owned(),
            false => String::new(),
        }
    }

    fn set(&mut self) -> Option<BTreeSet<String>> {
        if self.take() != "(" {
            return None;
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value());
            match self.take() {
                "," => {}
                ")" => return Some(values),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: &[&str], expected: bool) {
        let terms = parse(selector).unwrap();
        let labels = labels.iter().filter_map(|label| label.split_once('='));
        let labels: std::collections::BTreeMap<_, _> = labels.collect();
        let holds = |term: &LabelTerm| term.test.holds(labels.get(&*term.key).copied());
        assert_eq!(terms.iter().all(holds), expected, "{selector} {labels:?}");
    }

    #[test]
    fn an_object_without_the_label_matches_only_negations() {
        for (selector, with_a, without) in [
            ("x", true, false),
            ("!x", false, true),
            ("x=a", true, false),
            ("x == a", true, false),
            ("x!=a", false, true),
            ("x in (a, b)", true, false),
            ("x notin (a)", false, true),
            ("x in ()", false, false),
            ("x>1", false, false),
            ("x=a,y!=1", true, false),
            ("", true, true),
        ] {
            check(selector, &["x=a"], with_a);
            check(selector, &[], without);
        }
        check("n>4,n<6", &["n=5"], true);
        check("n>5", &["n=5"], false);
        check("x in (,)", &["x="], true);
        check("x=", &["x="], true);
    }

    #[test]
    fn what_apimachinery_refuses_is_refused() {
        for selector in [
            "x!",
            "=x",
            "===",
            "x=a)",
            "x,",
            "x in a",
            "x in (a b)",
            "x in (a",
            "x>a",
            "a/b/c",
            "x=-",
            "!",
            "(",
        ] {
            assert_eq!(parse(selector), None, "{selector}");
        }
    }
}
