//! A search for secrets in a text, in all forms in which they may appear: encoded, escaped, reversed or cut.

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};

/// The length of the pieces that are searched for, so that parts of a secret are found, too: its first 8 bytes, its last 8, and any 11
/// in between.
const PIECE_LEN: usize = 8;
/// The distance between two pieces.
const STEP: usize = 4;

/// A secret and its name, which is reported instead of it.
pub(crate) struct Secret {
    name: String,
    bytes: Vec<u8>,
}

impl Secret {
    pub(crate) fn new(name: impl Into<String>, bytes: &[u8]) -> Self {
        let name = name.into();
        assert!(
            bytes.len() >= 2 * PIECE_LEN,
            "{name} is so short that it may be found by chance"
        );
        Self {
            name,
            bytes: bytes.to_vec(),
        }
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let last = &self.bytes[self.bytes.len() - PIECE_LEN..];
        let pieces = self.bytes.windows(PIECE_LEN).step_by(STEP);
        pieces.chain([last])
    }
}

/// Searches for all forms of all secrets in one pass, because texts are long.
pub(crate) struct Search {
    names: Vec<String>,
    /// The index of the secret and the name of the form, for each pattern.
    forms: Vec<(usize, &'static str)>,
    patterns: AhoCorasick,
}

impl Search {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        let (mut pattern_forms, mut patterns) = (Vec::new(), Vec::new());
        for (index, secret) in secrets.iter().enumerate() {
            for (form, pattern) in secret.pieces().flat_map(forms) {
                pattern_forms.push((index, form));
                patterns.push(pattern);
            }
        }
        Self {
            names: secrets.iter().map(|secret| secret.name.clone()).collect(),
            forms: pattern_forms,
            patterns: AhoCorasick::new(patterns).unwrap(),
        }
    }

    /// For each secret that is in `text`: its name, the form in which it appears first, and the text before it.
    pub(crate) fn found_in(&self, text: &[u8]) -> Vec<String> {
        let mut found = vec![None; self.names.len()];
        for matched in self.patterns.find_overlapping_iter(text) {
            let (secret, form) = self.forms[matched.pattern()];
            found[secret].get_or_insert_with(|| {
                let before = &text[matched.start().saturating_sub(160)..matched.start()];
                let before = String::from_utf8_lossy(before).into_owned();
                format!("{}: {form}, after {before:?}", self.names[secret])
            });
        }
        found.into_iter().flatten().collect()
    }
}

/// Whether `marker` is in `text` in any form.
pub(crate) fn contains(text: &[u8], marker: &str) -> bool {
    let secret = Secret::new("marker", marker.as_bytes());
    !Search::new(&[secret]).found_in(text).is_empty()
}

fn forms(piece: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let joined = |write: fn(&u8) -> String, between: &str| {
        let bytes: Vec<String> = piece.iter().map(write).collect();
        bytes.join(between).into_bytes()
    };
    let mut forms = vec![
        ("plain", piece.to_vec()),
        ("reversed", piece.iter().rev().copied().collect()),
        ("percent-encoded", joined(|byte| format!("%{byte:02X}"), "")),
        ("percent-encoded", joined(|byte| format!("%{byte:02x}"), "")),
        ("hexadecimal", joined(|byte| format!("{byte:02X}"), "")),
        ("hexadecimal", joined(|byte| format!("{byte:02x}"), "")),
        (
            "hexadecimal numbers",
            joined(|byte| format!("{byte:02x}"), " "),
        ),
        ("escaped", joined(|byte| format!("\\x{byte:02x}"), "")),
        ("numbers", joined(u8::to_string, ", ")),
        ("numbers", joined(u8::to_string, ",")),
        ("numbers", joined(u8::to_string, " ")),
    ];
    for (form, alphabet) in [("base64", &STANDARD), ("base64url", &URL_SAFE)] {
        forms.extend((0..3).map(|shift| (form, base64(piece, alphabet, shift))));
    }
    forms
}

/// The characters of an encoding that depend on `piece` alone, if it starts `shift` bytes after a multiple of three.
fn base64(piece: &[u8], alphabet: &base64::alphabet::Alphabet, shift: usize) -> Vec<u8> {
    let shifted = [&[0_u8; 2][..shift], piece].concat();
    let text = GeneralPurpose::new(alphabet, NO_PAD).encode(&shifted);
    let (first, end) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
    text.into_bytes()[first..end].to_vec()
}

/// A secret is found in each form, whatever surrounds it, and also if it was cut.
#[test]
fn secrets_are_found_in_every_form() {
    let token = b"a-token-that-nobody-may-read-0123456789";
    let search = Search::new(&[
        Secret::new("other", b"something-else-altogether"),
        Secret::new("token", token),
    ]);
    let standard = GeneralPurpose::new(&STANDARD, NO_PAD);
    let url = GeneralPurpose::new(&URL_SAFE, NO_PAD);
    let percent: String = token.iter().map(|byte| format!("%{byte:02X}")).collect();
    let mut texts = vec![
        token.to_vec(),
        token[..8].to_vec(),
        token[token.len() - 8..].to_vec(),
        token[9..20].to_vec(),
        percent.clone().into_bytes(),
        percent.to_lowercase().into_bytes(),
        format!("{:?}", token.as_slice()).into_bytes(),
        format!("{:?}", String::from_utf8_lossy(token)).into_bytes(),
    ];
    for before in ["", "x", "Bearer ", "Authorization: Bearer "] {
        let text = [before.as_bytes(), token].concat();
        texts.push(standard.encode(&text).into_bytes());
        texts.push(url.encode(&text).into_bytes());
    }
    for text in texts {
        let around = [b"noise \xff", text.as_slice(), b" noise"].concat();
        let found = search.found_in(&around);
        let shown = String::from_utf8_lossy(&text);
        assert_eq!(found.len(), 1, "{shown}: {found:?}");
        assert!(found[0].starts_with("token: "), "{shown}: {found:?}");
    }
    let other = b"words that everybody may know, and 13579";
    assert_eq!(search.found_in(other), Vec::<String>::new());
}
