//! Messages for people, in the order of their first occurrence. Equal messages become one with a count: an error of one client often occurs
//! for most clients, and must not hide the few others.

use std::fmt;

/// A bounded list of different messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    lines: Vec<Line>,
    different_max: usize,
    /// Messages that were dropped because the list was full.
    left_out: u64,
}

/// A message, its first source, and how often it occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    who: String,
    what: String,
    count: u64,
}

impl Texts {
    /// An empty list of at most this many different messages; further ones are counted.
    pub fn new(different_max: usize) -> Self {
        Self {
            lines: Vec::new(),
            different_max,
            left_out: 0,
        }
    }

    /// Adds a message. The source is not compared; the first one is kept. It may be empty.
    pub fn add(&mut self, who: &str, what: &str) {
        self.add_line(who, what, 1);
    }

    /// Adds the messages of another list.
    pub fn merge(&mut self, other: &Self) {
        for line in &other.lines {
            self.add_line(&line.who, &line.what, line.count);
        }
        self.left_out += other.left_out;
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.left_out == 0
    }

    /// A line for each message, and one for the dropped ones.
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
    //! Equal messages become one, and all are counted.

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
