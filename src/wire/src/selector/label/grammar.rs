//! The label selector grammar of apimachinery (docs/PROTOCOL.md §2.5), token by token. Refuses the corner cases in which only the API
//! server can say what is valid: upstream decides on those.

use std::collections::BTreeSet;

use super::term::{LabelTerm, LabelTest};
use super::values::LabelValues;
use crate::resource::names::{is_label_key, is_label_value};

/// A token of the selector. `in` and `notin` are words; they are operators only where an operator must follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    Symbol(&'a str),
    Word(&'a str),
}

/// The terms of a selector; `None` if it is not certain to be valid.
pub(super) fn parse(text: &str) -> Option<Vec<LabelTerm>> {
    // The API server's lexer takes NUL for the end of a token, or of the selector.
    if text.contains('\0') {
        return None;
    }
    let mut parser = Parser { rest: text };
    let mut terms = Vec::new();
    if parser.peek() == Token::End {
        return Some(terms);
    }
    loop {
        terms.push(parser.term()?);
        match parser.take() {
            Token::End => return Some(terms),
            Token::Symbol(",") => {}
            Token::Symbol(_) | Token::Word(_) => return None,
        }
    }
}

/// Takes tokens from the front of `rest`. At the end it keeps returning the end token.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        lex(self.rest).0
    }

    fn take(&mut self) -> Token<'a> {
        let (token, rest) = lex(self.rest);
        self.rest = rest;
        token
    }

    fn word(&mut self) -> Option<&'a str> {
        match self.take() {
            Token::Word(text) => Some(text),
            Token::End | Token::Symbol(_) => None,
        }
    }

    fn term(&mut self) -> Option<LabelTerm> {
        let is_negated = self.peek() == Token::Symbol("!");
        if is_negated {
            self.take();
        }
        let key = self.word().filter(|key| is_label_key(key))?;
        let test = match self.peek() {
            _ if is_negated => LabelTest::Absent,
            Token::End | Token::Symbol(",") => LabelTest::Exists,
            Token::Symbol(_) | Token::Word(_) => self.comparison()?,
        };
        Some(LabelTerm {
            key: key.into(),
            test,
        })
    }

    fn comparison(&mut self) -> Option<LabelTest> {
        let (Token::Symbol(operator) | Token::Word(operator)) = self.take() else {
            return None;
        };
        Some(match operator {
            "=" | "==" => LabelTest::In(self.single_value()?),
            "!=" => LabelTest::NotIn(self.single_value()?),
            "in" => LabelTest::In(self.set()?),
            "notin" => LabelTest::NotIn(self.set()?),
            ">" => LabelTest::Greater(self.bound()?),
            "<" => LabelTest::Less(self.bound()?),
            _ => return None,
        })
    }

    /// The value after `=`, `==` or `!=`, which may be left out.
    fn single_value(&mut self) -> Option<LabelValues> {
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => "",
            Token::Symbol(_) | Token::Word(_) => self.word()?,
        };
        is_label_value(value).then(|| LabelValues::from_sorted([value].into_iter()))
    }

    /// The number after `>` or `<`. It must be a label value, too, so it has no sign.
    fn bound(&mut self) -> Option<i64> {
        self.word()
            .filter(|text| is_label_value(text))?
            .parse()
            .ok()
    }

    /// The values in parentheses. An empty one at either end is the empty value. Empty ones in the middle are refused here: the API server
    /// accepts some of them and refuses others.
    fn set(&mut self) -> Option<LabelValues> {
        if self.take() != Token::Symbol("(") {
            return None;
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Symbol("," | ")") => "",
                Token::End | Token::Symbol(_) | Token::Word(_) => self.word()?,
            };
            let is_last = match self.take() {
                Token::Symbol(")") => true,
                Token::Symbol(",") => false,
                Token::End | Token::Symbol(_) | Token::Word(_) => return None,
            };
            let is_in_the_middle = !values.is_empty() && !is_last;
            if !is_label_value(value) || value.is_empty() && is_in_the_middle {
                return None;
            }
            values.insert(value);
            if is_last {
                return Some(LabelValues::from_sorted(values.into_iter()));
            }
        }
    }
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

/// The first token, and the rest of the text.
fn lex(text: &str) -> (Token<'_>, &str) {
    const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];
    let text = text.trim_start_matches(BLANKS);
    let symbol_len = match *text.as_bytes() {
        [] => return (Token::End, text),
        [b'=' | b'!', b'=', ..] => 2,
        [first, ..] if is_symbol(first) => 1,
        _ => 0,
    };
    if symbol_len > 0 {
        let (symbol, rest) = text.split_at(symbol_len);
        return (Token::Symbol(symbol), rest);
    }
    let len = text
        .bytes()
        .position(|byte| is_symbol(byte) || BLANKS.contains(&char::from(byte)))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(len);
    (Token::Word(word), rest)
}
