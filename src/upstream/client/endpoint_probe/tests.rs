//! What the answers to a check say.

use super::*;

#[test]
fn only_a_refusal_or_a_uid_says_something_about_the_cluster() {
    let named = br#"{"kind":"Namespace","metadata":{"uid":"u"}}"#.as_slice();
    let status = br#"{"kind":"Status"}"#.as_slice();
    let uid = ProbeOutcome::Identified(Some("u".to_owned()));
    for (code, body, expected) in [
        (200, named, uid),
        (200, status, ProbeOutcome::Unidentified),
        (401, status, ProbeOutcome::Unauthorized),
        (403, status, ProbeOutcome::Identified(None)),
        (404, status, ProbeOutcome::Identified(None)),
        (429, status, ProbeOutcome::Unidentified),
        (500, status, ProbeOutcome::Unidentified),
        (504, status, ProbeOutcome::Unidentified),
    ] {
        let code = StatusCode::from_u16(code).unwrap();
        assert_eq!(identity(code, body), expected, "{code}");
    }
}
