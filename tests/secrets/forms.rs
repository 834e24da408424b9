//! The forms in which a secret may stand in what somebody else reads, and where it does.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};
use memchr::memmem::Finder;

/// Of a secret that was cut, so many bytes are still found.
const PIECE_LEN: usize = 16;

/// What nobody may read, and what it looks like.
pub(crate) struct Secret {
    pub(crate) name: String,
    forms: Vec<(&'static str, Finder<'static>)>,
}

impl Secret {
    /// All forms of all pieces of a secret.
    pub(crate) fn new(name: &str, secret: &[u8]) -> Self {
        assert!(secret.len() >= PIECE_LEN, "{name} is too short to be found");
        let pieces = secret.chunks_exact(PIECE_LEN);
        let forms = pieces.flat_map(forms);
        Self {
            name: name.to_owned(),
            forms: forms
                .map(|(form, bytes)| (form, Finder::new(&bytes).into_owned()))
                .collect(),
        }
    }

    /// The first form that stands in `text`, and what is before it.
    pub(crate) fn found_in(&self, text: &[u8]) -> Option<String> {
        self.forms.iter().find_map(|(form, finder)| {
            let at = finder.find(text)?;
            let before = &text[at.saturating_sub(160)..at];
            Some(format!(
                "{form}, behind {:?}",
                String::from_utf8_lossy(before)
            ))
        })
    }
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

/// Each secret is found in each form, whatever stands around it.
#[test]
fn secrets_are_found_in_every_form() {
    let token = b"a-token-that-nobody-may-read-0123456789";
    let secret = Secret::new("token", token);
    let standard = GeneralPurpose::new(&STANDARD, NO_PAD);
    let url = GeneralPurpose::new(&URL_SAFE, NO_PAD);
    let percent: String = token.iter().map(|byte| format!("%{byte:02X}")).collect();
    let mut texts = vec![
        token.to_vec(),
        token[..20].to_vec(),
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
        assert!(
            secret.found_in(&around).is_some(),
            "{:?}",
            String::from_utf8_lossy(&text)
        );
    }
    let other = b"a-token-that-nobody-else-has-9876543210".as_slice();
    assert_eq!(
        Secret::new("x", b"something-else-altogether-1234").found_in(other),
        None
    );
}
