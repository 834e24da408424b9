//! HTTP/2 clients that open no windows, or small ones: what waits for them holds up nobody else.

use crate::frames::{
    DATA, Frame, HEADERS, INITIAL_WINDOW_SIZE, Raw, data_len, get, reset, settings, window_update,
};
use crate::stage::{Stage, until};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Some 40 KB.
const EVERYTHING: &str = "/api/v1/pods";
const ALL_PODS: &str = "/api/v1/pods?watch=1";
const WATCHES: &str = "kube_fanout_longrunning_requests";
const PODS_ONLY: &[&str] = &["resource=\"pods\"", "verb=\"WATCH\""];
/// Every connection's first window (RFC 9113 §6.9.2).
const CONNECTION_WINDOW_LEN: usize = 65_535;
const STREAM_COUNT: u32 = 50;
const MUCH: u32 = 1 << 20;

fn streams() -> impl Iterator<Item = u32> {
    (0..STREAM_COUNT).map(|number| 2 * number + 1)
}

fn has_head(frames: &[Frame], stream: u32) -> bool {
    frames.iter().any(|frame| frame.is(HEADERS, stream))
}

/// Reads until every one of `streams` has been answered.
async fn heads(raw: &mut Raw, streams: impl Iterator<Item = u32>) -> Vec<Frame> {
    let mut left: Vec<u32> = streams.collect();
    let mut frames = Vec::new();
    while !left.is_empty() {
        let frame = raw.next().await.unwrap();
        if frame.kind == HEADERS {
            left.retain(|stream| *stream != frame.stream);
        }
        frames.push(frame);
    }
    frames
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_whose_windows_stay_shut_get_what_they_have_room_for() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let asked: Vec<u8> = streams()
        .flat_map(|stream| get(stream, if stream % 4 == 1 { ALL_PODS } else { PODS }))
        .collect();
    raw.send(&asked).await;
    let mut frames = heads(&mut raw, streams()).await;
    stage.apiserver.set_churn(500);
    frames.extend(raw.settled().await);
    for stream in streams() {
        assert_eq!(data_len(&frames, stream), 0, "{stream}");
    }
    // One of each kind is opened a little.
    for (stream, room) in [(1, 700), (3, 70)] {
        raw.send(&window_update(stream, room)).await;
        let frames = raw.until(|frame| frame.is(DATA, stream)).await;
        let rest = raw.settled().await;
        let came = data_len(&frames, stream) + data_len(&rest, stream);
        assert_eq!(came, room as usize, "{stream}");
        let others = frames
            .iter()
            .chain(&rest)
            .filter(|frame| frame.kind == DATA);
        assert!(others.clone().all(|frame| frame.stream == stream));
    }
    assert_eq!(stage.get(PODS).await.status(), 200);
    // All of them at once, by the setting: who has room for it gets it all.
    raw.send(&settings(&[(INITIAL_WINDOW_SIZE, MUCH)])).await;
    raw.send(&window_update(0, 50 * MUCH)).await;
    let mut left: Vec<u32> = streams().filter(|stream| stream % 4 == 3).collect();
    while !left.is_empty() {
        let frame = raw.next().await.unwrap();
        if frame.ends_stream() {
            left.retain(|stream| *stream != frame.stream);
        }
    }
    stage.apiserver.set_churn(0);
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_window_is_used_up_still_pings_and_answers_and_goes_on() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, MUCH)]).await;
    raw.send(
        &streams()
            .flat_map(|stream| get(stream, EVERYTHING))
            .collect::<Vec<_>>(),
    )
    .await;
    let mut came = 0;
    let mut ended = 0;
    while came < CONNECTION_WINDOW_LEN {
        let frame = raw.next().await.unwrap();
        came += if frame.kind == DATA {
            frame.payload.len()
        } else {
            0
        };
        ended += u32::from(frame.ends_stream());
    }
    assert_eq!(came, CONNECTION_WINDOW_LEN);
    assert!(ended < STREAM_COUNT);
    // Heads and pings need no window.
    let late = 2 * STREAM_COUNT + 1;
    raw.send(&get(late, EVERYTHING)).await;
    let mut frames = heads(&mut raw, [late].into_iter()).await;
    frames.extend(raw.settled().await);
    assert!(has_head(&frames, late));
    assert!(frames.iter().all(|frame| frame.kind != DATA));
    raw.send(&window_update(0, 50 * MUCH)).await;
    while ended < STREAM_COUNT + 1 {
        let frame = raw.next().await.unwrap();
        ended += u32::from(frame.ends_stream());
    }
    stage.end(witness).await;
}

/// What a stalled stream may use of the connection's window is its own window; the rest is for its siblings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_watch_uses_its_own_window_and_no_more_of_the_connection() {
    const STALLED: u32 = 1;
    const ROOM: u32 = 1_000;
    const RECEIVED: &str = "kube_fanout_upstream_events_received_total";
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, ROOM)]).await;
    raw.send(&get(STALLED, ALL_PODS)).await;
    let mut frames = heads(&mut raw, [STALLED].into_iter()).await;
    stage.apiserver.set_churn(1_000);
    let pods = &["resource=\"pods\""];
    let begun = stage.metric(RECEIVED, pods).await;
    stage.metric_reaches(RECEIVED, pods, begun + 300.0).await;
    stage.apiserver.set_churn(0);
    frames.extend(raw.settled().await);
    assert_eq!(data_len(&frames, STALLED), ROOM as usize);
    // A sibling gets all the rest of the connection's window without another word.
    let sibling = 3;
    let left = CONNECTION_WINDOW_LEN - ROOM as usize;
    raw.send(&[get(sibling, EVERYTHING), window_update(sibling, MUCH)].concat())
        .await;
    let mut came = 0;
    let mut is_whole = false;
    while came < left && !is_whole {
        let frame = raw.next().await.unwrap();
        if frame.stream == sibling {
            is_whole = frame.ends_stream();
            came += data_len(&[frame], sibling);
        }
    }
    assert!(is_whole || came == left, "{came} of {left}");
    raw.settled().await;
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_frees_the_watcher_whatever_it_was_waiting_for() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    // Half have initial events that wait for room, half wait for events.
    let asked: Vec<u8> = streams()
        .flat_map(|stream| {
            let path = if stream % 4 == 1 {
                ALL_PODS
            } else {
                "/api/v1/pods?watch=1&labelSelector=app%3Dnone"
            };
            get(stream, path)
        })
        .collect();
    raw.send(&asked).await;
    heads(&mut raw, streams()).await;
    let open = stage.metric(WATCHES, PODS_ONLY).await;
    assert_eq!(open, f64::from(STREAM_COUNT));
    raw.send(&streams().flat_map(reset).collect::<Vec<_>>())
        .await;
    until("the watches end", async || {
        stage.metric(WATCHES, PODS_ONLY).await == 0.0
    })
    .await;
    let gone = &["resource=\"pods\"", "reason=\"client_gone\""];
    stage
        .metric_reaches(
            "kube_fanout_stream_ends_total",
            gone,
            f64::from(STREAM_COUNT),
        )
        .await;
    // The connection is as good as new.
    let next = 2 * STREAM_COUNT + 1;
    raw.send(&[get(next, PODS), window_update(next, MUCH)].concat())
        .await;
    raw.until(|frame| frame.stream == next && frame.ends_stream())
        .await;
    stage.end(witness).await;
}
