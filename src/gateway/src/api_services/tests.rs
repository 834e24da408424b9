//! What the feed believes, and for how long. Upstream is scripted; the clock is paused and moves only when all tasks wait.

use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::*;
use crate::resource::Gvr;
use crate::upstream::driver::RequestPurpose;
use crate::upstream::driver::samples::scripted::{
    Asked, Feed, Script, bookmark, marker, push, settled, sort_of,
};

/// Longer than every wait of the feed, and shorter than a watch may last.
const TIMEOUT: Duration = Duration::from_secs(400);

/// A feed, and the requests that its upstream gets.
struct Stage {
    feed: Arc<ApiServiceFeed<Script>>,
    requests: Receiver<Asked>,
}

impl Stage {
    fn start() -> Self {
        let (script, requests) = Script::new();
        let feed = Arc::new(ApiServiceFeed::new(Arc::new(script)));
        let running = Arc::clone(&feed);
        tokio::spawn(async move { running.run().await });
        Self { feed, requests }
    }

    /// A feed that has streamed these lines.
    async fn streamed(lines: &[String]) -> (Self, Feed) {
        let mut stage = Self::start();
        let stream = stage.requests.recv().await.unwrap();
        assert_eq!(sort_of(&stream.path), "stream latest");
        let feed = stream.open();
        push(&feed, lines).await;
        (stage, feed)
    }

    /// Upstream's watches are accepted and silent, and its lists are these.
    async fn serve_lists(requests: &mut Receiver<Asked>, list: &str) {
        let mut silent = Vec::new();
        while let Some(request) = requests.recv().await {
            if request.purpose == RequestPurpose::Watch {
                silent.push(request.open());
            } else {
                request.whole(200, list).await;
            }
        }
    }

    fn known(&self) -> Arc<ApiServiceKnowledge> {
        Arc::clone(&self.feed.known.borrow())
    }
}

/// The service that serves the tests' group, if that is known.
fn service(known: &ApiServiceKnowledge) -> Option<Box<str>> {
    let ApiServiceKnowledge::Known(services) = known else {
        return None;
    };
    services.service(&widgets())
}

fn widgets() -> Gvr {
    Gvr::new("example.com", "v1", "widgets")
}

/// The APIService of the tests' group at this version.
fn object(version: u64, spec: &str) -> String {
    format!(
        r#"{{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{{"name":"v1.example.com","uid":"u","resourceVersion":"{version}"}},"spec":{{"group":"example.com","version":"v1"{spec}}}}}"#
    )
}

const LOCAL: &str = "";
const MOVED: &str = r#","service":{"namespace":"ns","name":"s"}"#;

fn line(kind: &str, version: u64, spec: &str) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{}}}\n",
        object(version, spec)
    )
}

fn list(version: u64, item: &str) -> String {
    format!(
        r#"{{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"items":[{item}]}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_group_that_moves_while_the_watch_is_silent_is_found_out() {
    let initial = [line("ADDED", 3, LOCAL), marker(5)];
    let (mut stage, _silent) = Stage::streamed(&initial).await;
    assert!(matches!(*stage.known(), ApiServiceKnowledge::Known(_)));
    let mut known = stage.feed.subscribe();
    let moved = list(20, &object(15, MOVED));
    tokio::select! {
        () = Stage::serve_lists(&mut stage.requests, &moved) => unreachable!("the feed runs"),
        learnt = timeout(TIMEOUT, known.wait_for(|known| service(known).is_some())) => {
            assert!(learnt.is_ok(), "the silent watch is believed");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_after_newer_ones_is_not_left_out() {
    let initial = [line("ADDED", 3, LOCAL), marker(8)];
    let (mut stage, feed) = Stage::streamed(&initial).await;
    push(&feed, &[line("MODIFIED", 7, MOVED)]).await;
    let mut known = stage.feed.subscribe();
    let moved = list(20, &object(7, MOVED));
    let stream = stage.requests.recv().await.unwrap();
    stream.refuse(422).await;
    tokio::select! {
        () = Stage::serve_lists(&mut stage.requests, &moved) => unreachable!("the feed runs"),
        learnt = timeout(TIMEOUT, known.wait_for(|known| service(known).is_some())) => {
            assert!(learnt.is_ok(), "the late change is left out");
        }
    }
}

fn is_known(stage: &Stage) -> bool {
    matches!(*stage.known(), ApiServiceKnowledge::Known(_))
}

/// Caches that were just restored would be given up for what is only late.
#[tokio::test(start_paused = true)]
async fn nothing_is_known_before_all_api_services_were_read() {
    let (stage, feed) = Stage::streamed(&[line("ADDED", 3, LOCAL)]).await;
    assert_eq!(*stage.known(), ApiServiceKnowledge::Unread);
    push(&feed, &[marker(5)]).await;
    assert!(is_known(&stage));
}

/// Upstream answers discovery, and accepts no watch and no list of APIServices for so long.
async fn refuse_all(stage: &mut Stage, time: Duration) {
    let end = Instant::now() + time;
    while let Ok(request) = tokio::time::timeout_at(end, stage.requests.recv()).await {
        stage.feed.upstream_answers();
        request.unwrap().refuse(503).await;
    }
    stage.feed.upstream_answers();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_opens_again_after_a_loss_proves_nothing_yet() {
    let initial = [line("ADDED", 3, LOCAL), marker(5)];
    let (mut stage, feed) = Stage::streamed(&initial).await;
    drop(feed);
    refuse_all(&mut stage, LOST_MAX - Duration::from_secs(5)).await;
    assert!(is_known(&stage));
    refuse_all(&mut stage, Duration::from_secs(10)).await;
    assert!(!is_known(&stage));
    let feed = loop {
        let request = stage.requests.recv().await.unwrap();
        if request.purpose == RequestPurpose::Watch {
            break request.open();
        }
        request.refuse(503).await;
    };
    settled().await;
    assert!(!is_known(&stage), "what the last watch lacked has not come");
    push(&feed, &[line("MODIFIED", 7, MOVED), bookmark(9)]).await;
    assert_eq!(service(&stage.known()).as_deref(), Some("ns/s"));
}

#[tokio::test(start_paused = true)]
async fn a_comparison_proves_what_is_known_while_the_watch_is_missing() {
    let initial = [line("ADDED", 3, LOCAL), marker(5)];
    let (mut stage, feed) = Stage::streamed(&initial).await;
    drop(feed);
    let same = list(20, &object(3, LOCAL));
    let end = Instant::now() + LOST_MAX * 4;
    while let Ok(request) = tokio::time::timeout_at(end, stage.requests.recv()).await {
        stage.feed.upstream_answers();
        assert!(is_known(&stage));
        let request = request.unwrap();
        if request.purpose == RequestPurpose::Watch {
            request.refuse(503).await;
        } else {
            request.whole(200, &same).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_while_upstream_is_out_of_reach_and_for_a_while_after() {
    let initial = [line("ADDED", 3, LOCAL), marker(5)];
    let (stage, _silent) = Stage::streamed(&initial).await;
    stage.feed.upstream_answers();
    stage.feed.upstream_fails();
    tokio::time::advance(LOST_MAX * 4).await;
    stage.feed.upstream_answers();
    assert!(
        is_known(&stage),
        "nothing was confirmed because nothing answered"
    );
    tokio::time::advance(LOST_MAX).await;
    stage.feed.upstream_answers();
    assert!(is_known(&stage));
    tokio::time::advance(Duration::from_secs(1)).await;
    stage.feed.upstream_answers();
    assert!(!is_known(&stage));
}

#[tokio::test(start_paused = true)]
async fn what_was_known_last_is_not_forgotten_with_a_loss() {
    let initial = [line("ADDED", 3, MOVED), marker(5)];
    let (mut stage, feed) = Stage::streamed(&initial).await;
    drop(feed);
    refuse_all(&mut stage, LOST_MAX * 2).await;
    assert!(!is_known(&stage));
    let last = stage.known().last().cloned().unwrap();
    assert!(last.service(&widgets()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_leaves_a_service_counts_as_its_own_until_all_handlers_have_switched() {
    let initial = [line("ADDED", 3, MOVED), marker(5)];
    let (stage, feed) = Stage::streamed(&initial).await;
    push(&feed, &[line("MODIFIED", 7, LOCAL)]).await;
    let left_at = Instant::now();
    assert!(service(&stage.known()).is_some());
    // It comes back, and leaves again.
    push(&feed, &[line("MODIFIED", 8, MOVED)]).await;
    tokio::time::advance(HANDLER_SWITCH_MAX / 2).await;
    push(&feed, &[line("DELETED", 9, MOVED)]).await;
    tokio::time::advance(HANDLER_SWITCH_MAX / 2).await;
    push(&feed, &[line("ADDED", 10, LOCAL)]).await;
    assert!(left_at.elapsed() > HANDLER_SWITCH_MAX && service(&stage.known()).is_some());
    let mut known = stage.feed.subscribe();
    let left = known.wait_for(|known| service(known).is_none());
    assert!(timeout(TIMEOUT, left).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_comes_and_goes_in_one_batch_is_not_overlooked() {
    let initial = [line("ADDED", 3, LOCAL), marker(5)];
    let (stage, feed) = Stage::streamed(&initial).await;
    push(
        &feed,
        &[line("MODIFIED", 7, MOVED), line("MODIFIED", 8, LOCAL)],
    )
    .await;
    assert!(service(&stage.known()).is_some());
    let mut known = stage.feed.subscribe();
    let left = known.wait_for(|known| service(known).is_none());
    assert!(timeout(TIMEOUT, left).await.is_ok());
}
