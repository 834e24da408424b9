//! Indents JSON as Go's `json.Indent` does with two spaces, for clients that ask for `pretty` (docs/PROTOCOL.md §5.6). Pure.

use bytes::Bytes;
use memchr::memchr2;

/// Indents JSON that comes in pieces. A piece must not end inside a string, a number or a literal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indenter {
    depth: usize,
    /// True right after an opening bracket: a line break follows unless the bracket closes at once.
    opened: bool,
}

impl Indenter {
    /// Starts in the middle of a document, at this depth; `opened` says whether a bracket was just opened.
    #[must_use]
    pub const fn at(depth: usize, opened: bool) -> Self {
        Self { depth, opened }
    }

    /// Indents one piece.
    #[must_use]
    pub fn piece(&mut self, json: &[u8]) -> Bytes {
        self.part(json, usize::MAX).0
    }

    /// Indents the beginning of a piece, up to about `len_max` bytes of output, and returns how many input bytes that took. The
    /// limit matters because a deeply nested object grows with the square of its depth.
    #[must_use]
    pub fn part(&mut self, json: &[u8], len_max: usize) -> (Bytes, usize) {
        // Objects typically grow by half. Counting brackets would be more exact but takes longer.
        let mut out = Vec::with_capacity((json.len() * 2).min(len_max));
        let mut rest = json;
        while let Some((&byte, after)) = rest.split_first() {
            if out.len() >= len_max {
                break;
            }
            let len = if byte == b'"' { string_len(rest) } else { 1 };
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'}' | b']' => self.close(byte, &mut out),
                _ => {
                    if std::mem::take(&mut self.opened) {
                        self.depth += 1;
                        self.line(&mut out);
                    }
                    out.extend_from_slice(&rest[..len]);
                    match byte {
                        b'{' | b'[' => self.opened = true,
                        b',' => self.line(&mut out),
                        b':' => out.push(b' '),
                        _ => {}
                    }
                }
            }
            rest = &after[len - 1..];
        }
        (out.into(), json.len() - rest.len())
    }

    fn close(&mut self, byte: u8, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.opened) {
            self.depth = self.depth.saturating_sub(1);
            self.line(out);
        }
        out.push(byte);
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

/// Length of the string that starts here, quotes included; the length of the input if the string does not end.
fn string_len(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Output of Go's `json.MarshalIndent(…, "", "  ")`.
    const SAMPLES: [(&str, &str); 4] = [
        ("{}", "{}"),
        (r#"[[],{},""]"#, "[\n  [],\n  {},\n  \"\"\n]"),
        (
            r#"{"a":{"b":[1,true,null],"c":{}},"d":"x\"{[,:\\"}"#,
            "{\n  \"a\": {\n    \"b\": [\n      1,\n      true,\n      null\n    ],\n    \"c\": {}\n  },\n  \"d\": \"x\\\"{[,:\\\\\"\n}",
        ),
        ("-1.5e3", "-1.5e3"),
    ];

    #[test]
    fn samples_come_out_as_go_writes_them() {
        for (compact, indented) in SAMPLES {
            let out = Indenter::default().piece(compact.as_bytes());
            assert_eq!(String::from_utf8_lossy(&out), indented);
        }
    }

    #[test]
    fn indenting_twice_changes_nothing_more() {
        for (_, indented) in SAMPLES {
            let out = Indenter::default().piece(indented.as_bytes());
            assert_eq!(String::from_utf8_lossy(&out), indented);
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..6).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        /// serde_json's pretty printer is an independent implementation of the same rules.
        #[test]
        fn it_agrees_with_another_printer(value in value()) {
            let compact = value.to_string();
            let out = Indenter::default().piece(compact.as_bytes());
            prop_assert_eq!(String::from_utf8_lossy(&out), serde_json::to_string_pretty(&value).unwrap());
        }

        #[test]
        fn pieces_are_indented_as_the_whole(values in prop::collection::vec(value(), 1..5)) {
            let items: Vec<_> = values.iter().map(Value::to_string).collect();
            let mut indenter = Indenter::default();
            let mut out = indenter.piece(b"[").to_vec();
            for (at, item) in items.iter().enumerate() {
                out.extend_from_slice(&indenter.piece(if at > 0 { b"," } else { b"" }));
                out.extend_from_slice(&indenter.piece(item.as_bytes()));
            }
            out.extend_from_slice(&indenter.piece(b"]\n"));
            let whole = Indenter::default().piece(format!("[{}]", items.join(",")).as_bytes());
            prop_assert_eq!(&out[..], &whole[..]);
        }

        #[test]
        fn parts_are_indented_as_the_whole(value in value(), len_max in 1_usize..100) {
            let json = value.to_string();
            let (mut indenter, mut out, mut at) = (Indenter::default(), Vec::new(), 0);
            while at < json.len() {
                let (part, count) = indenter.part(&json.as_bytes()[at..], len_max);
                prop_assert!(count > 0);
                out.extend_from_slice(&part);
                at += count;
            }
            prop_assert_eq!(&out[..], &Indenter::default().piece(json.as_bytes())[..]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Indenter::default().piece(&bytes);
        }
    }
}
