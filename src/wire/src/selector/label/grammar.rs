//! The label selector grammar of apimachinery, token by token, so that the error messages are the same (docs/PROTOCOL.md §2.5).

use std::collections::BTreeSet;

use super::term::{LabelTerm, LabelTest};
use super::values::LabelValues;
use crate::resource::names::{label_key_faults, label_value_faults};
use crate::resource::quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    End,
    Symbol,
    Word,
}

/// A token of the selector. `in` and `notin` are words; they are operators only where an operator must follow.
#[derive(Clone, Copy, Debug)]
struct SelectorToken<'a> {
    kind: TokenKind,
    text: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    In,
    NotIn,
    Greater,
    Less,
}

pub(super) fn parse(text: &str) -> Result<Vec<LabelTerm>, String> {
    let mut parser = Parser { rest: text };
    let mut terms = Vec::new();
    let first = parser.peek();
    if first.kind == TokenKind::End {
        return Ok(terms);
    }
    if !first.begins_term() {
        return Err(format!(
            "found '{}', expected: !, identifier, or 'end of string'",
            first.text
        ));
    }
    loop {
        let term = parser.term();
        terms.push(term.map_err(|fault| format!("unable to parse requirement: {fault}"))?);
        let next = parser.take();
        match (next.kind, next.text) {
            (TokenKind::End, _) => return Ok(terms),
            (TokenKind::Symbol, ",") => {}
            (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
        }
        let next = parser.peek();
        if !next.begins_term() {
            return Err(format!(
                "found '{}', expected: identifier after ','",
                next.text
            ));
        }
    }
}

impl SelectorToken<'_> {
    fn is(self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    fn begins_term(self) -> bool {
        self.kind == TokenKind::Word || self.is("!")
    }
}

/// Takes tokens from the front of `rest`. At the end it keeps returning the end token.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> SelectorToken<'a> {
        lex(self.rest).0
    }

    fn take(&mut self) -> SelectorToken<'a> {
        let (token, rest) = lex(self.rest);
        self.rest = rest;
        token
    }

    fn term(&mut self) -> Result<LabelTerm, String> {
        let mut token = self.take();
        let negated = token.is("!");
        if negated {
            token = self.take();
        }
        if token.kind != TokenKind::Word {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        let key = token.text;
        let faults = label_key_faults(key);
        if !faults.is_empty() {
            return Err(invalid("<nil>", key, &faults.join("; ")));
        }
        let next = self.peek();
        let test = if negated {
            LabelTest::Absent
        } else if next.kind == TokenKind::End || next.is(",") {
            LabelTest::Exists
        } else {
            self.comparison(key)?
        };
        Ok(LabelTerm {
            key: key.into(),
            test,
        })
    }

    fn comparison(&mut self, key: &str) -> Result<LabelTest, String> {
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            Operator::Is | Operator::IsNot | Operator::Greater | Operator::Less => {
                BTreeSet::from([self.value()?])
            }
        };
        let mut faults = Vec::new();
        let mut bound = 0;
        if matches!(operator, Operator::Greater | Operator::Less) {
            for (index, value) in values.iter().enumerate() {
                match value.parse() {
                    Ok(number) => bound = number,
                    Err(_) => faults.push(invalid(
                        &format!("values[{index}]"),
                        value,
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    )),
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let violated = label_value_faults(value);
            if !violated.is_empty() {
                let field = format!("values[{index}][{key}]");
                faults.push(invalid(&field, value, &violated.join("; ")));
            }
        }
        match &*faults {
            [] => {}
            [one] => return Err(one.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        let values = LabelValues::from_sorted(values.into_iter());
        Ok(match operator {
            Operator::Is | Operator::In => LabelTest::In(values),
            Operator::IsNot | Operator::NotIn => LabelTest::NotIn(values),
            Operator::Greater => LabelTest::Greater(bound),
            Operator::Less => LabelTest::Less(bound),
        })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.take();
        Ok(match token.text {
            "=" | "==" => Operator::Is,
            "!=" => Operator::IsNot,
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            ">" => Operator::Greater,
            "<" => Operator::Less,
            text => {
                return Err(format!(
                    "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        })
    }

    fn value(&mut self) -> Result<&'a str, String> {
        let next = self.peek();
        if next.kind == TokenKind::End || next.is(",") {
            return Ok("");
        }
        let token = self.take();
        match token.kind {
            TokenKind::Word => Ok(token.text),
            TokenKind::End | TokenKind::Symbol => {
                Err(format!("found '{}', expected: identifier", token.text))
            }
        }
    }

    fn set(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let open = self.take();
        if !open.is("(") {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let next = self.peek();
        if next.is(")") {
            self.take();
            return Ok(BTreeSet::from([""]));
        }
        if next.kind != TokenKind::Word && !next.is(",") {
            return Err(format!(
                "found '{}', expected: ',', ')' or identifier",
                next.text
            ));
        }
        let values = self.listed_values()?;
        self.take();
        Ok(values)
    }

    /// The values up to the closing parenthesis, which is not consumed. A comma without a value next to it stands for `""`.
    fn listed_values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.take();
            let next = self.peek();
            if token.kind == TokenKind::Word {
                values.insert(token.text);
                if next.is(")") {
                    return Ok(values);
                }
                if !next.is(",") {
                    return Err(format!("found '{}', expected: ',' or ')'", next.text));
                }
            } else if token.is(",") {
                if values.is_empty() || next.is(",") || next.is(")") {
                    values.insert("");
                }
                if next.is(")") {
                    return Ok(values);
                }
                if next.is(",") {
                    // Two commas are consumed together, so a value or a third comma must follow.
                    self.take();
                }
            } else {
                return Err(format!(
                    "found '{}', expected: ',', or identifier",
                    token.text
                ));
            }
        }
    }
}

fn invalid(field: &str, value: &str, detail: &str) -> String {
    format!("{field}: Invalid value: {}: {detail}", quoted(value))
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The first token, and the rest of the text. A NUL byte right after a token is dropped with it; a NUL byte at the start of a
/// token ends the selector, as in the API server's lexer.
fn lex(text: &str) -> (SelectorToken<'_>, &str) {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let bytes = text.as_bytes();
    let token = |kind, len: usize, skip: usize| {
        let (text, rest) = (&text[..len], &text[len + skip..]);
        (SelectorToken { kind, text }, rest)
    };
    let nul_at = |index: usize| usize::from(bytes.get(index) == Some(&0));
    match *bytes {
        [] => token(TokenKind::End, 0, 0),
        [0, ..] => (
            SelectorToken {
                kind: TokenKind::End,
                text: "",
            },
            "",
        ),
        [b'=' | b'!', b'=', ..] => token(TokenKind::Symbol, 2, nul_at(2)),
        [first, ..] if is_symbol(first) => token(TokenKind::Symbol, 1, nul_at(1)),
        _ => {
            let ends = |byte: &u8| *byte == 0 || is_symbol(*byte) || is_blank(*byte);
            let len = bytes.iter().position(ends).unwrap_or(bytes.len());
            token(TokenKind::Word, len, nul_at(len))
        }
    }
}
