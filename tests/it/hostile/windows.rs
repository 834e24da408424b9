//! HTTP/2 clients with closed or small flow control windows: data that waits for them delays no other stream or client.

use crate::hostile::frames::{
    DATA, Frame, HEADERS, INITIAL_WINDOW_SIZE, Raw, data_len, get, reset, settings, window_update,
};
use crate::hostile::stage::{Stage, until};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// About 40 KB.
const EVERYTHING: &str = "/api/v1/pods";
const ALL_PODS: &str = "/api/v1/pods?watch=1";
const WATCHES: &str = "kube_fanout_longrunning_requests";
const PODS_ONLY: &[&str] = &["resource=\"pods\"", "verb=\"WATCH\""];
/// The initial window of a connection (RFC 9113 §6.9.2).
const CONNECTION_WINDOW_LEN: usize = 65_535;
const STREAM_COUNT: u32 = 50;
/// More room than any response needs.
const LARGE_WINDOW: u32 = 1 << 20;

fn streams() -> impl Iterator<Item = u32> {
    (0..STREAM_COUNT).map(|number| 2 * number + 1)
}

fn has_head(frames: &[Frame], stream: u32) -> bool {
    frames.iter().any(|frame| frame.is(HEADERS, stream))
}

/// Reads until the head of the response has arrived on each of `streams`.
async fn read_heads(raw: &mut Raw, streams: impl Iterator<Item = u32>) -> Vec<Frame> {
    let mut pending: Vec<u32> = streams.collect();
    let mut frames = Vec::new();
    while !pending.is_empty() {
        let frame = raw.next().await.unwrap();
        if frame.kind == HEADERS {
            pending.retain(|stream| *stream != frame.stream);
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
    let requests: Vec<u8> = streams()
        .flat_map(|stream| get(stream, if stream % 4 == 1 { ALL_PODS } else { PODS }))
        .collect();
    raw.send(&requests).await;
    let mut frames = read_heads(&mut raw, streams()).await;
    stage.apiserver.set_churn(500);
    frames.extend(raw.settled().await);
    for stream in streams() {
        assert_eq!(data_len(&frames, stream), 0, "{stream}");
    }
    // A list and a watch get a little room.
    for (stream, room) in [(1, 700), (3, 70)] {
        raw.send(&window_update(stream, room)).await;
        let frames = raw.until(|frame| frame.is(DATA, stream)).await;
        let rest = raw.settled().await;
        let received = data_len(&frames, stream) + data_len(&rest, stream);
        assert_eq!(received, room as usize, "{stream}");
        let others = frames
            .iter()
            .chain(&rest)
            .filter(|frame| frame.kind == DATA);
        assert!(others.clone().all(|frame| frame.stream == stream));
    }
    assert_eq!(stage.get(PODS).await.status(), 200);
    // The setting opens the windows of all streams at once: all lists are completed.
    raw.send(&settings(&[(INITIAL_WINDOW_SIZE, LARGE_WINDOW)])).await;
    raw.send(&window_update(0, 50 * LARGE_WINDOW)).await;
    let mut pending: Vec<u32> = streams().filter(|stream| stream % 4 == 3).collect();
    while !pending.is_empty() {
        let frame = raw.next().await.unwrap();
        if frame.ends_stream() {
            pending.retain(|stream| *stream != frame.stream);
        }
    }
    stage.apiserver.set_churn(0);
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_window_is_used_up_still_pings_and_answers_and_goes_on() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, LARGE_WINDOW)]).await;
    raw.send(
        &streams()
            .flat_map(|stream| get(stream, EVERYTHING))
            .collect::<Vec<_>>(),
    )
    .await;
    let mut received = 0;
    let mut ended = 0;
    while received < CONNECTION_WINDOW_LEN {
        let frame = raw.next().await.unwrap();
        received += if frame.kind == DATA {
            frame.payload.len()
        } else {
            0
        };
        ended += u32::from(frame.ends_stream());
    }
    assert_eq!(received, CONNECTION_WINDOW_LEN);
    assert!(ended < STREAM_COUNT);
    // Heads and pings need no window.
    let late = 2 * STREAM_COUNT + 1;
    raw.send(&get(late, EVERYTHING)).await;
    let mut frames = read_heads(&mut raw, [late].into_iter()).await;
    frames.extend(raw.settled().await);
    assert!(has_head(&frames, late));
    assert!(frames.iter().all(|frame| frame.kind != DATA));
    raw.send(&window_update(0, 50 * LARGE_WINDOW)).await;
    while ended < STREAM_COUNT + 1 {
        let frame = raw.next().await.unwrap();
        ended += u32::from(frame.ends_stream());
    }
    stage.end(witness).await;
}

/// A stalled stream uses no more of the connection's window than its own window; the rest is left to the other streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_watch_uses_its_own_window_and_no_more_of_the_connection() {
    const STALLED: u32 = 1;
    const ROOM: u32 = 1_000;
    const RECEIVED: &str = "kube_fanout_upstream_events_received_total";
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, ROOM)]).await;
    raw.send(&get(STALLED, ALL_PODS)).await;
    let mut frames = read_heads(&mut raw, [STALLED].into_iter()).await;
    stage.apiserver.set_churn(1_000);
    let pods = &["resource=\"pods\""];
    let before = stage.metric(RECEIVED, pods).await;
    stage.metric_reaches(RECEIVED, pods, before + 300.0).await;
    stage.apiserver.set_churn(0);
    frames.extend(raw.settled().await);
    assert_eq!(data_len(&frames, STALLED), ROOM as usize);
    // Another stream gets the whole rest of the connection's window, without a further window update of the connection.
    let sibling = 3;
    let remaining = CONNECTION_WINDOW_LEN - ROOM as usize;
    raw.send(&[get(sibling, EVERYTHING), window_update(sibling, LARGE_WINDOW)].concat())
        .await;
    let mut received = 0;
    let mut is_complete = false;
    while received < remaining && !is_complete {
        let frame = raw.next().await.unwrap();
        if frame.stream == sibling {
            is_complete = frame.ends_stream();
            received += data_len(&[frame], sibling);
        }
    }
    assert!(
        is_complete || received == remaining,
        "{received} of {remaining}"
    );
    raw.settled().await;
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_frees_the_watcher_whatever_it_was_waiting_for() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    // Half of the watches have initial events that wait for room; the other half wait for events.
    let requests: Vec<u8> = streams()
        .flat_map(|stream| {
            let path = if stream % 4 == 1 {
                ALL_PODS
            } else {
                "/api/v1/pods?watch=1&labelSelector=app%3Dnone"
            };
            get(stream, path)
        })
        .collect();
    raw.send(&requests).await;
    read_heads(&mut raw, streams()).await;
    let open = stage.metric(WATCHES, PODS_ONLY).await;
    assert_eq!(open, f64::from(STREAM_COUNT));
    raw.send(&streams().flat_map(reset).collect::<Vec<_>>())
        .await;
    until("the watches end", async || {
        stage.metric(WATCHES, PODS_ONLY).await == 0.0
    })
    .await;
    let labels = &["resource=\"pods\"", "reason=\"client_gone\""];
    stage
        .metric_reaches(
            "kube_fanout_stream_ends_total",
            labels,
            f64::from(STREAM_COUNT),
        )
        .await;
    // The connection is still usable.
    let next = 2 * STREAM_COUNT + 1;
    raw.send(&[get(next, PODS), window_update(next, LARGE_WINDOW)].concat())
        .await;
    raw.until(|frame| frame.stream == next && frame.ends_stream())
        .await;
    stage.end(witness).await;
}
