//! The forms in which a secret may stand in what somebody else reads, and where it does.

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};

/// Of a secret that was cut, so many bytes are still found: its first ones, its last ones, and some in between.
const PIECE_LEN: usize = 8;
/// From one piece to the next.
const STEP: usize = 4;

/// What nobody may read.
pub(crate) struct Secret {
    name: String,
    bytes: Vec<u8>,
}

impl Secret {
    pub(crate) fn new(name: impl Into<String>, bytes: &[u8]) -> Self {
        let name = name.into();
        assert!(bytes.len() >= 2 * PIECE_LEN, "{name} is found by chance");
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

/// Looks for all forms of all secrets at once: texts are long, and each form by itself takes as long as all of them.
pub(crate) struct Search {
    names: Vec<String>,
    /// The secret and the form of each pattern.
    forms: Vec<(usize, &'static str)>,
    patterns: AhoCorasick,
}

impl Search {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        let (mut kinds, mut patterns) = (Vec::new(), Vec::new());
        for (index, secret) in secrets.iter().enumerate() {
            for (form, pattern) in secret.pieces().flat_map(forms) {
                kinds.push((index, form));
                patterns.push(pattern);
            }
        }
        Self {
            names: secrets.iter().map(|secret| secret.name.clone()).collect(),
            forms: kinds,
            patterns: AhoCorasick::new(patterns).unwrap(),
        }
    }

    /// For each secret that stands in `text`: its name, the first form in which it does, and what is before it.
    pub(crate) fn found_in(&self, text: &[u8]) -> Vec<String> {
        let mut found = vec![None; self.names.len()];
        for place in self.patterns.find_overlapping_iter(text) {
            let (secret, form) = self.forms[place.pattern()];
            found[secret].get_or_insert_with(|| {
                let before = &text[place.start().saturating_sub(160)..place.start()];
                let before = String::from_utf8_lossy(before).into_owned();
                format!("{}: {form}, behind {before:?}", self.names[secret])
            });
        }
        found.into_iter().flatten().collect()
    }
}

/// Whether something stands in `text` in any form.
pub(crate) fn is_told(something: &str, text: &[u8]) -> bool {
    let secret = Secret::new("planted", something.as_bytes());
    !Search::new(&[secret]).found_in(text).is_empty()
}

fn forms(piece: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let joined = |write: fn(&u8) -> String, between: &str| {
        let bytes: Vec<String> = piece.iter().map(write).collect();
        bytes.join(between).into_bytes()
    };
    let mut forms = vec![
        ("as it is", piece.to_vec()),
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

/// The characters that `piece` alone decides, if it stands `shift` bytes behind a multiple of three.
fn base64(piece: &[u8], alphabet: &base64::alphabet::Alphabet, shift: usize) -> Vec<u8> {
    let shifted = [&[0_u8; 2][..shift], piece].concat();
    let text = GeneralPurpose::new(alphabet, NO_PAD).encode(&shifted);
    let (first, end) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
    text.into_bytes()[first..end].to_vec()
}

/// Each secret is found in each form, whatever stands around it, also if it was cut.
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
        let told = String::from_utf8_lossy(&text);
        assert_eq!(found.len(), 1, "{told}: {found:?}");
        assert!(found[0].starts_with("token: "), "{told}: {found:?}");
    }
    let other = b"words that everybody may know, and 13579";
    assert_eq!(search.found_in(other), Vec::<String>::new());
}
