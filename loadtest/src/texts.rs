//! Texts for people, in the order of their first mention. Equal ones are one with a count: what goes wrong for one of a thousand clients
//! often goes wrong for most of them, and the few other texts must not drown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A bounded list of different texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texts {
    lines: Vec<Line>,
    different_max: usize,
    /// How often something was said that has no place here.
    left_out: u64,
}

/// A text, who said it first, and how often it was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    who: String,
    what: String,
    count: u64,
}

impl Texts {
    /// None yet, and never more than so many different ones; the rest is counted.
    pub fn new(different_max: usize) -> Self {
        Self {
            lines: Vec::new(),
            different_max,
            left_out: 0,
        }
    }

    /// Adds what somebody said. Who did is no part of the text, and is kept for the first one; it may be empty.
    pub fn add(&mut self, who: &str, what: &str) {
        self.add_line(who, what, 1);
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        for line in &other.lines {
            self.add_line(&line.who, &line.what, line.count);
        }
        self.left_out += other.left_out;
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.left_out == 0
    }

    /// A line for each text, and one for those that had no place.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let left_out = (self.left_out > 0).then(|| format!("and {} more", self.left_out));
        self.lines.iter().map(Line::to_string).chain(left_out)
    }

    fn add_line(&mut self, who: &str, what: &str, count: u64) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.what == what) {
            line.count += count;
        } else if self.lines.len() < self.different_max {
            self.lines.push(Line {
                who: who.to_owned(),
                what: what.to_owned(),
                count,
            });
        } else {
            self.left_out += count;
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, what, count } = self;
        match (who.is_empty(), count - 1) {
            (true, 0) => write!(f, "{what}"),
            (true, _) => write!(f, "{what} ({count} times)"),
            (false, 0) => write!(f, "{who}: {what}"),
            (false, more) => write!(f, "{who} and {more} more: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Nothing is said twice, and nothing is lost from the counts.

    use super::*;

    #[test]
    fn equal_texts_are_one_and_the_rest_is_counted() {
        let mut texts = Texts::new(2);
        for number in 0..3 {
            texts.add(&format!("client {number}"), "HTTP 429");
        }
        texts.add("", "reset");
        let mut other = Texts::new(2);
        other.add("", "reset");
        other.add("client 9", "cut");
        other.add("client 9", "cut");
        texts.merge(&other);
        let lines: Vec<_> = texts.lines().collect();
        assert_eq!(
            lines,
            [
                "client 0 and 2 more: HTTP 429",
                "reset (2 times)",
                "and 2 more"
            ]
        );
        assert!(Texts::new(0).is_empty() && !texts.is_empty());
    }
}
