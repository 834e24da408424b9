//! HTTP/2 clients with large windows, whose running watches delivery workers write between h2's frames (decision 65), frame by frame: the
//! windows hold, nothing is missing, and what watches reserve costs other streams nothing.

use serde_json::Value;

use crate::hostile::frames::{
    ACK, DATA, Frame, INITIAL_WINDOW_SIZE, RESET, RawConnection, SETTINGS, data_len, get, reset,
    settings, window_update,
};
use crate::hostile::stage::Stage;

const CONFIGMAPS: &str = "/api/v1/namespaces/adopted/configmaps";
/// About 40 KB.
const EVERYTHING: &str = "/api/v1/pods";
/// The initial window of a connection (RFC 9113 §6.9.2).
const CONNECTION_WINDOW_LEN: usize = 65_535;
/// Enough that watches may reserve a part of the connection's window.
const MORE: u32 = 1 << 20;
const RECEIVED: &str = "kube_fanout_upstream_events_received_total";

/// A connection with these windows, and a watch of the configmaps on stream 1 that has had its first event.
async fn watching(stage: &Stage, stream_window: u32, more: u32) -> (RawConnection, Watch) {
    let list = stage.get(CONFIGMAPS).await;
    let list: Value = serde_json::from_slice(list.body()).unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let values = [(INITIAL_WINDOW_SIZE, stream_window)];
    let mut raw = RawConnection::connect(stage.address, &values).await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={from}");
    raw.send(&[window_update(0, more), get(1, &path)].concat())
        .await;
    let mut watch = Watch {
        stream: 1,
        room: stream_window as usize,
        bytes: Vec::new(),
    };
    stage.create(CONFIGMAPS, "first").await;
    watch.until(&mut raw, "first", &[]).await;
    (raw, watch)
}

/// What a client has of a watch.
struct Watch {
    stream: u32,
    /// What is left of the stream's window, bytes.
    room: usize,
    bytes: Vec<u8>,
}

impl Watch {
    fn take(&mut self, frame: &Frame) {
        if frame.is(DATA, self.stream) {
            let len = frame.payload.len();
            assert!(
                len <= self.room,
                "{len} bytes, and a window of {}",
                self.room
            );
            self.room -= len;
            self.bytes.extend_from_slice(&frame.payload);
        }
        assert!(!frame.is(RESET, self.stream));
    }

    /// Reads until it has the event of an object; grants these windows, one after the other, whenever the last one is used up.
    async fn until(&mut self, raw: &mut RawConnection, name: &str, grants: &[u32]) {
        let mut grants = grants.iter().cycle();
        while self.names().last().is_none_or(|last| last != name) {
            if self.room == 0
                && let Some(grant) = grants.next()
            {
                raw.send(&window_update(self.stream, *grant)).await;
                self.room += *grant as usize;
            }
            let frame = raw.next().await.unwrap();
            self.take(&frame);
        }
    }

    /// The objects of the events that are complete.
    fn names(&self) -> Vec<String> {
        let lines = self.bytes.split_inclusive(|byte| *byte == b'\n');
        let whole = lines.filter(|line| line.ends_with(b"\n"));
        let name = |line: &[u8]| {
            let event: Value = serde_json::from_slice(line).unwrap();
            event["object"]["metadata"]["name"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        whole.map(name).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_watch_gets_what_its_windows_have_room_for_and_nothing_is_missing() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let (mut raw, mut watch) = watching(&stage, 1_000, MORE).await;
    let mut expected = vec!["first".to_owned()];
    for grants in [&[1][..], &[7, 300], &[5_000, 1, 90]] {
        for number in 0..10 {
            let name = format!("o-{}-{number}", grants.len());
            stage.create(CONFIGMAPS, &name).await;
            expected.push(name);
        }
        watch
            .until(&mut raw, expected.last().unwrap(), grants)
            .await;
    }
    raw.sync().await.iter().for_each(|frame| watch.take(frame));
    assert_eq!(watch.names(), expected);
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_that_the_settings_shrink_hold_from_the_acknowledgement_on() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let (mut raw, mut watch) = watching(&stage, MORE, 4 * MORE).await;
    let shrinks = settings(&[(INITIAL_WINDOW_SIZE, 0)]);
    raw.send(&shrinks).await;
    let is_acknowledged = |frame: &Frame| frame.kind == SETTINGS && frame.flags == ACK;
    let frames = raw.until(is_acknowledged).await;
    frames.iter().for_each(|frame| watch.take(frame));
    // From now on there is no room at all.
    let received = std::mem::take(&mut watch.room);
    let labels = &["resource=\"configmaps\""];
    let before = stage.metric(RECEIVED, labels).await;
    for number in 0..20 {
        stage.create(CONFIGMAPS, &format!("o-{number}")).await;
    }
    stage.metric_reaches(RECEIVED, labels, before + 20.0).await;
    for _ in 0..5 {
        raw.sync().await.iter().for_each(|frame| watch.take(frame));
    }
    assert_eq!(watch.names(), ["first"]);
    watch.room = received;
    raw.send(&settings(&[(INITIAL_WINDOW_SIZE, MORE)])).await;
    watch.until(&mut raw, "o-19", &[]).await;
    assert_eq!(watch.names().len(), 21);
    stage.check_and_shut_down(witness).await;
}

/// A client whose window of the connection is used up by lists gets all of it, although a watch had reserved some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_quiet_watch_has_reserved_is_there_for_lists() {
    const LISTS: u32 = 60;
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let (mut raw, mut watch) = watching(&stage, 4 * MORE, MORE).await;
    let lists = (1..=LISTS).map(|number| 2 * number + 1);
    let requests: Vec<_> = lists.flat_map(|stream| get(stream, EVERYTHING)).collect();
    raw.send(&requests).await;
    let (mut received, mut ended) = (watch.bytes.len(), 0);
    let mut count = |frame: &Frame, ended: &mut u32| {
        received += data_len(std::slice::from_ref(frame), frame.stream);
        *ended += u32::from(frame.ends_stream());
        received
    };
    loop {
        let frame = raw.next().await.unwrap();
        if count(&frame, &mut ended) == CONNECTION_WINDOW_LEN + MORE as usize {
            break;
        }
    }
    assert!(ended < LISTS);
    raw.send(&window_update(0, 8 * MORE)).await;
    while ended < LISTS {
        let frame = raw.next().await.unwrap();
        count(&frame, &mut ended);
    }
    stage.create(CONFIGMAPS, "last").await;
    watch.until(&mut raw, "last", &[]).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_watch_ends_with_its_last_event_and_may_be_reset_at_any_time() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let (mut raw, mut watch) = watching(&stage, MORE, 64 * MORE).await;
    stage.apiserver.set_churn(200);
    // Those that end by themselves.
    let mut open: Vec<u32> = (1..=40).map(|number| 4 * number - 1).collect();
    let mut ended = Vec::new();
    let mut take = |watch: &mut Watch, frame: &Frame| {
        watch.take(frame);
        assert!(!ended.contains(&frame.stream), "{frame:?}");
        assert!(frame.kind != RESET || !open.contains(&frame.stream));
        if frame.ends_stream() {
            open.retain(|stream| *stream != frame.stream);
            ended.push(frame.stream);
        }
        open.is_empty()
    };
    let mut is_over = false;
    for number in 1..=40 {
        let (short, other) = (4 * number - 1, 4 * number + 1);
        let path = format!("{EVERYTHING}?watch=1");
        let ends = format!("{path}&timeoutSeconds=1");
        raw.send(&[get(short, &ends), get(other, &path)].concat())
            .await;
        // At another moment of its life each time.
        let mut left = number % 5 + 1;
        while left > 0 {
            let frame = raw.next().await.unwrap();
            is_over = take(&mut watch, &frame);
            left -= u32::from(frame.is(DATA, other));
        }
        raw.send(&reset(other)).await;
    }
    while !is_over {
        let frame = raw.next().await.unwrap();
        is_over = take(&mut watch, &frame);
    }
    stage.apiserver.set_churn(0);
    stage.create(CONFIGMAPS, "last").await;
    watch.until(&mut raw, "last", &[]).await;
    for frame in raw.sync().await {
        take(&mut watch, &frame);
    }
    stage.check_and_shut_down(witness).await;
}
