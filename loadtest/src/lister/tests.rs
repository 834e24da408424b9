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
        lister.ended(Ended::Complete(200), &mut recorder);
        results.push(lister.listed.remove(0));
    }
    assert_eq!(results[0].items, 40);
    assert_eq!(results[0].version, Some(77));
    assert_eq!(results[0].failure, None);
    assert!(results.iter().all(|one| *one == results[0]));
}
