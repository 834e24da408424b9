//! Checks that bytes are one JSON value, with the error messages of Go's decoder. Builds no value.

use crate::selector::quoted_byte;

const DEPTH_MAX: usize = 10_000; // Go's limit
const UNEXPECTED_END: &str = "unexpected end of JSON input";

#[derive(Clone, Copy, PartialEq, Eq)]
enum InputContainer {
    Object,
    Array,
}

#[derive(Clone, Copy)]
enum ExpectedSyntax {
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    Colon,
    Next,
}

struct Checker<'a> {
    rest: &'a [u8],
    inside: Vec<InputContainer>,
    end: EndOfInput,
}

/// Go's decoder reads one blank after the last byte, so its error about a truncated literal can name a blank that is not in the
/// input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndOfInput {
    BeforeBlank,
    AfterBlank,
}

/// Checks the whole input. The error is Go's message.
pub(super) fn check(json: &[u8]) -> Result<(), String> {
    let mut checker = Checker {
        rest: json,
        inside: Vec::new(),
        end: EndOfInput::BeforeBlank,
    };
    let mut expect = ExpectedSyntax::Value;
    // Terminates: every iteration consumes at least one byte or returns.
    loop {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = checker.rest {
            checker.rest = rest;
        }
        if checker.rest.is_empty()
            && checker.inside.is_empty()
            && matches!(expect, ExpectedSyntax::Next)
        {
            return Ok(());
        }
        expect = checker.step(expect)?;
    }
}

impl Checker<'_> {
    fn step(&mut self, expect: ExpectedSyntax) -> Result<ExpectedSyntax, String> {
        if self.rest.is_empty() {
            return Err(UNEXPECTED_END.to_owned());
        }
        let byte = self.take()?;
        match (expect, byte) {
            (ExpectedSyntax::ValueOrClose, b']') | (ExpectedSyntax::KeyOrClose, b'}') => {
                self.inside.pop();
                Ok(ExpectedSyntax::Next)
            }
            (ExpectedSyntax::Value | ExpectedSyntax::ValueOrClose, _) => self.value(byte),
            (ExpectedSyntax::Key | ExpectedSyntax::KeyOrClose, b'"') => {
                self.string()?;
                Ok(ExpectedSyntax::Colon)
            }
            (ExpectedSyntax::Key | ExpectedSyntax::KeyOrClose, _) => Err(unexpected(
                byte,
                "looking for beginning of object key string",
            )),
            (ExpectedSyntax::Colon, b':') => Ok(ExpectedSyntax::Value),
            (ExpectedSyntax::Colon, _) => Err(unexpected(byte, "after object key")),
            (ExpectedSyntax::Next, _) => self.after_value(byte),
        }
    }

    fn after_value(&mut self, byte: u8) -> Result<ExpectedSyntax, String> {
        match (self.inside.last(), byte) {
            (None, _) => Err(unexpected(byte, "after top-level value")),
            (Some(InputContainer::Object), b',') => Ok(ExpectedSyntax::Key),
            (Some(InputContainer::Array), b',') => Ok(ExpectedSyntax::Value),
            (Some(InputContainer::Object), b'}') | (Some(InputContainer::Array), b']') => {
                self.inside.pop();
                Ok(ExpectedSyntax::Next)
            }
            (Some(InputContainer::Object), _) => {
                Err(unexpected(byte, "after object key:value pair"))
            }
            (Some(InputContainer::Array), _) => Err(unexpected(byte, "after array element")),
        }
    }

    fn value(&mut self, first: u8) -> Result<ExpectedSyntax, String> {
        match first {
            b'{' => return self.open(InputContainer::Object, ExpectedSyntax::KeyOrClose),
            b'[' => return self.open(InputContainer::Array, ExpectedSyntax::ValueOrClose),
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(first)?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => return Err(unexpected(first, "looking for beginning of value")),
        }
        Ok(ExpectedSyntax::Next)
    }

    fn open(
        &mut self,
        inside: InputContainer,
        expect: ExpectedSyntax,
    ) -> Result<ExpectedSyntax, String> {
        if self.inside.len() == DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        self.inside.push(inside);
        Ok(expect)
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.take()? {
                b'"' => return Ok(()),
                b'\\' => match self.take()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.take()?;
                            if !digit.is_ascii_hexdigit() {
                                let context = "in \\u hexadecimal character escape";
                                return Err(unexpected(digit, context));
                            }
                        }
                    }
                    other => return Err(unexpected(other, "in string escape code")),
                },
                control @ ..0x20 => return Err(unexpected(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let mut digit = first;
        if digit == b'-' {
            digit = self.take()?;
        }
        match digit {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return Err(unexpected(digit, "in numeric literal")),
        }
        if self.skip(b".") {
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        for expected in literal.bytes().skip(1) {
            let byte = self.take()?;
            if byte != expected {
                let expected = quoted_byte(expected);
                let context = format!("in literal {literal} (expecting {expected})");
                return Err(unexpected(byte, &context));
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<u8, String> {
        match (self.rest, self.end) {
            ([byte, rest @ ..], _) => {
                self.rest = rest;
                Ok(*byte)
            }
            ([], EndOfInput::BeforeBlank) => {
                self.end = EndOfInput::AfterBlank;
                Ok(b' ')
            }
            ([], EndOfInput::AfterBlank) => Err(UNEXPECTED_END.to_owned()),
        }
    }

    fn skip(&mut self, any_of: &[u8]) -> bool {
        let found = self.rest.first().is_some_and(|byte| any_of.contains(byte));
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn digit(&mut self, context: &str) -> Result<(), String> {
        match self.take()? {
            b'0'..=b'9' => Ok(()),
            other => Err(unexpected(other, context)),
        }
    }

    fn digits(&mut self) {
        while self.skip(b"0123456789") {}
    }
}

fn unexpected(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted_byte(byte))
}
