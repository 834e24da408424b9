//! Tests of a body that is copied.

use std::pin::pin;
use std::task::Waker;

use http_body_util::{BodyExt as _, Full, StreamBody};

use super::*;

type TestBody =
    StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, &'static str>>>>;

fn body(parts: &[Result<&'static str, &'static str>]) -> TestBody {
    let parts = parts
        .iter()
        .map(|part| part.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))));
    StreamBody::new(futures::stream::iter(parts.collect::<Vec<_>>()))
}

async fn copied(mut reader: TeeReader) -> String {
    let mut found = String::new();
    while let Some(item) = reader.recv().await {
        found += &match item {
            TeeItem::Chunk(chunk, _) => String::from_utf8(chunk.to_vec()).unwrap(),
            TeeItem::Idle => "-idle-".to_owned(),
            TeeItem::End => "-end".to_owned(),
            TeeItem::Broken => "-broken".to_owned(),
        };
    }
    found
}

#[tokio::test]
async fn a_body_is_passed_on_unchanged_and_copied() {
    let (tee, reader) = ShadowTee::new(body(&[Ok("ab"), Ok("cd")]), ByteBudget::new(100));
    assert_eq!(tee.collect().await.unwrap().to_bytes(), "abcd");
    assert_eq!(copied(reader).await, "abcd-end");

    let (tee, reader) = ShadowTee::new(Full::new(Bytes::from("abc")), ByteBudget::new(100));
    assert_eq!(tee.size_hint().exact(), Some(3));
    assert_eq!(tee.collect().await.unwrap().to_bytes(), "abc");
    assert_eq!(copied(reader).await, "abc-end");
}

#[tokio::test]
async fn an_error_and_a_client_that_leaves_break_the_copy_off() {
    let (tee, reader) = ShadowTee::new(body(&[Ok("ab"), Err("lost")]), ByteBudget::new(100));
    assert!(tee.collect().await.is_err());
    assert_eq!(copied(reader).await, "ab-broken");

    let (mut tee, reader) = ShadowTee::new(body(&[Ok("ab"), Ok("cd")]), ByteBudget::new(100));
    tee.frame().await.unwrap().unwrap();
    drop(tee);
    assert_eq!(copied(reader).await, "ab-broken");
}

#[tokio::test]
async fn without_room_the_copy_ends_and_the_body_goes_on() {
    let (tee, reader) = ShadowTee::new(body(&[Ok("ab"), Ok("cd")]), ByteBudget::new(3));
    assert_eq!(tee.collect().await.unwrap().to_bytes(), "abcd");
    assert_eq!(copied(reader).await, "ab");

    let many = vec![Ok("a"); WAITING_MAX + 1];
    let (tee, reader) = ShadowTee::new(body(&many), ByteBudget::new(10_000));
    assert_eq!(
        tee.collect().await.unwrap().to_bytes().len(),
        WAITING_MAX + 1
    );
    assert_eq!(copied(reader).await.len(), WAITING_MAX);

    // Nobody compares.
    let (tee, reader) = ShadowTee::new(body(&[Ok("ab")]), ByteBudget::new(100));
    drop(reader);
    assert_eq!(tee.collect().await.unwrap().to_bytes(), "ab");
}

#[test]
fn silence_is_told_once() {
    let pending = futures::stream::pending::<Result<Frame<Bytes>, &str>>();
    let (tee, mut reader) = ShadowTee::new(StreamBody::new(pending), ByteBudget::new(100));
    let mut tee = pin!(tee);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(tee.as_mut().poll_frame(&mut context).is_pending());
    }
    assert!(matches!(reader.try_recv(), Ok(TeeItem::Idle)));
    assert!(reader.try_recv().is_err());
}
