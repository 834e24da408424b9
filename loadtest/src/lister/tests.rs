//! Counting and sampling do not depend on how a body is cut.

use super::*;

#[test]
fn items_and_digest_are_the_same_for_every_piece_length() {
    let mut body =
        br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"77"},"items":["#.to_vec();
    for i in 0..40 {
        body.extend_from_slice(
            format!(r#"{{"metadata":{{"name":"cm-{i}","uid":"{i}"}}}},"#).as_bytes(),
        );
    }
    body.extend_from_slice(b"{}]}\n");
    let mut results = Vec::new();
    for piece_len in 1..body.len() {
        let mut lister = Lister::new("/".into());
        let mut recorder = Recorder::default();
        body.chunks(piece_len)
            .for_each(|piece| lister.body(200, piece, &mut recorder));
        lister.response_ended(ResponseEnd::Complete(200), &mut recorder);
        results.push(lister.listed.remove(0));
    }
    assert_eq!(results[0].items, 40);
    assert_eq!(results[0].version, Some(77));
    assert_eq!(results[0].failure, None);
    assert!(results.iter().all(|one| *one == results[0]));
}

/// What a lister finds in a body that arrives in pieces of this length.
fn listed(mut lister: Lister, body: &[u8], piece_len: usize) -> ListResult {
    let mut recorder = Recorder::default();
    body.chunks(piece_len)
        .for_each(|piece| lister.body(200, piece, &mut recorder));
    lister.response_ended(ResponseEnd::Complete(200), &mut recorder);
    lister.listed.remove(0)
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
            ended_at_ns: plain.ended_at_ns,
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
