//! What a list is found to be does not depend on how it is cut; incomplete ones are refused.

use super::*;
use crate::verify::reference::{ObjectVersions, fingerprint};

/// What a lister finds in a body that arrives in pieces of this length.
fn listed(mut lister: Lister, body: &[u8], piece_len: usize) -> ListResult {
    let mut recorder = Recorder::default();
    body.chunks(piece_len)
        .for_each(|piece| lister.body(200, piece, &mut recorder));
    let how = match lister.wants_to_leave(&Control::default()) {
        true => ResponseEnd::Left,
        false => ResponseEnd::Complete(200),
    };
    lister.response_ended(how, &mut recorder);
    lister.into_lists().remove(0)
}

#[test]
fn items_and_digest_are_the_same_for_every_piece_length() {
    let mut body =
        br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"77"},"items":["#.to_vec();
    for i in 0..40 {
        let item = format!(r#"{{"metadata":{{"name":"cm-{i}","uid":"{i}"}}}},"#);
        body.extend_from_slice(item.as_bytes());
    }
    body.extend_from_slice(b"{}]}\n");
    let whole = listed(Lister::new("/".into()), &body, body.len());
    assert_eq!((whole.items, whole.version), (40, Some(77)));
    assert_eq!(whole.failure, None);
    for piece_len in 1..body.len() {
        assert_eq!(listed(Lister::new("/".into()), &body, piece_len), whole);
    }
}

#[test]
fn a_compressed_body_is_looked_at_decompressed() {
    let body =
        b"{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"uid\":\"1\"}]}\n".repeat(3);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&body).unwrap();
    let member = encoder.finish().unwrap();
    let plain = listed(Lister::new("/".into()), &body, 100);
    for piece_len in [1, 7, member.len()] {
        let seen = listed(Lister::gzip("/".into()), &member, piece_len);
        assert_eq!(seen.wire_bytes, member.len() as u64);
        let seen = ListResult {
            wire_bytes: plain.wire_bytes,
            ..seen
        };
        assert_eq!(seen, plain);
    }
    let mut wrong_sum = member.clone();
    let at = wrong_sum.len() - 5;
    wrong_sum[at] ^= 1;
    let cut = &member[..member.len() - 1];
    let more = [&member[..], b"x"].concat();
    for bad in [&wrong_sum, cut, &more, &body] {
        let seen = listed(Lister::gzip("/".into()), bad, 11);
        assert!(seen.failure.is_some());
    }
}

fn added(name: &str, version: u64) -> String {
    format!(
        r#"{{"type":"ADDED","object":{{"kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}}}"#
    ) + "\n"
}

const MARKED: &str = concat!(
    r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"9","#,
    r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    "\n"
);

#[test]
fn a_streamed_list_ends_with_its_marker() {
    let text = [&added("a", 3), &added("b", 7), MARKED].concat();
    let whole = listed(Lister::streaming("/p".into()), text.as_bytes(), 40);
    assert_eq!((whole.items, whole.version), (2, Some(9)));
    let state = ObjectVersions::from([("n/b".to_owned(), 7), ("n/a".to_owned(), 3)]);
    assert_eq!((whole.digest, whole.failure), (fingerprint(&state), None));
    let early = MARKED.replace("\"true\"", "\"false\"");
    for (bad, why) in [
        (added("a", 3), "before the marker"),
        (added("a", 3) + &early, "a bookmark before"),
        (
            added("a", 3).replace("ADDED", "MODIFIED"),
            "among the initial",
        ),
    ] {
        let seen = listed(Lister::streaming("/p".into()), bad.as_bytes(), 40);
        let failure = seen.failure.unwrap();
        assert!(failure.contains(why), "{failure}");
    }
}

#[test]
fn a_client_that_repeats_waits_after_a_refusal_and_finds_short_lists() {
    let again = || Next::Send("/p".to_owned());
    let whole = r#"{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"uid":"1"}}]}"#;
    let empty = r#"{"metadata":{"resourceVersion":"3"},"items":[]}"#;
    let complete = ResponseEnd::Complete(200);
    for (body, how, next, wrong) in [
        (whole, complete, again(), None),
        (
            &whole[..30],
            complete,
            again(),
            Some("a list without its end"),
        ),
        (empty, complete, again(), Some("a list of 0 objects")),
        ("{}", ResponseEnd::Complete(429), Next::Pause, None),
        (
            &whole[..30],
            ResponseEnd::Broken("reset"),
            Next::Pause,
            None,
        ),
    ] {
        let mut recorder = Recorder::default();
        let mut client = Lister::repeating("/p".into(), 1);
        let status = match how {
            ResponseEnd::Complete(status) => status,
            ResponseEnd::Broken(_) | ResponseEnd::Left => 200,
        };
        client.body(status, body.as_bytes(), &mut recorder);
        client.response_ended(how, &mut recorder);
        assert_eq!(client.next(&Control::default()), next);
        assert_eq!(client.wrong(), wrong);
    }
}
